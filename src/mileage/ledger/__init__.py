"""Ledger: who used how much GPU time, and what it costs. Pure; storage feeds it."""
