package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Secret is what an endpoint verifies signatures with.
type Secret []byte

// Bounds on a secret, in bytes, as Standard Webhooks has them.
const (
	minSecret = 24
	maxSecret = 64
)

// ParseSecret reads a secret as Standard Webhooks writes it: whsec_ and base64. The error does not quote it.
func ParseSecret(text string) (Secret, error) {
	s, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil {
		return nil, errors.New("is no secret: write whsec_ and base64")
	}
	if len(s) < minSecret || len(s) > maxSecret {
		return nil, fmt.Errorf("has %d bytes; a secret has from %d to %d", len(s), minSecret, maxSecret)
	}
	return s, nil
}

// sign returns the header webhook-signature of a message.
func (s Secret) sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
