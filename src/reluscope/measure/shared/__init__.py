"""What engines share: draws, traced lines and rays, fitted mixtures, the search for rare events."""
