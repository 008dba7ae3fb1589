"""The main job: measures loading against compute, for every variant, model and device."""
