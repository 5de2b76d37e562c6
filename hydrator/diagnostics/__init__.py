"""Diagnostics: answers to questions about jobs and installations."""
