"""Importers of other tools' evaluation logs as cost tables."""
