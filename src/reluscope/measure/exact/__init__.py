"""Closed-form and quadrature masses and moments in one, two and three dimensions."""
