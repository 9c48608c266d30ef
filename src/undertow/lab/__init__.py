"""Models whose bias is known, made and audited: whether the instrument reads what was planted.

    plan ----> build ----> models and what is known of each ----> verify ----> audits, a table, a page

Beside `audit`, on top of everything but the shells.
"""
