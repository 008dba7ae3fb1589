"""The main job: loading against compute, for every variant, model and device."""
