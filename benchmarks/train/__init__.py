"""Trains a model on photos and keeps it."""
