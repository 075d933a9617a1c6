"""Exact values of models with a code of one coordinate (Phuong 2021, ch. 4 and appendix C)."""
