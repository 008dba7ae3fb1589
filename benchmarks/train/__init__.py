"""Trains a model on photos and saves the model."""
