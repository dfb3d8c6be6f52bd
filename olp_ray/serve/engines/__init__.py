"""Engines that requests are sent to."""
