"""Protocols of published experiments: their draws, in their order, and their training.

====================  ================================================================
file                  whose
====================  ================================================================
lippl2022.py          Lippl, Abbott, Chung (2022): split, draws of gates, configuration
released_training.py  the same: their networks, trained exactly as released
====================  ================================================================
"""
