package notify

import "time"

// Sign returns the header webhook-signature.
func (s Secret) Sign(id string, at time.Time, body []byte) string { return s.sign(id, at, body) }
