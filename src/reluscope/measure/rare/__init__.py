"""Rare events, by importance sampling of rays that are integrated exactly."""
