"""A real daemon and a small client for the end-to-end tests."""
