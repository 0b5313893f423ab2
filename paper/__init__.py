"""The paper's experiments.

Cells as plain data, results in a store that resumes, in one process or in many.
"""
