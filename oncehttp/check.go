package oncehttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// transportHeaders are set by net/http, or change what a request is.
var transportHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// CheckHeader says why a header cannot be set on a request: its name is none, or the header belongs to the transport.
func CheckHeader(name string) error {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }) {
		return fmt.Errorf("%.100q is no name of a header", name)
	}
	if canonical := http.CanonicalHeaderKey(name); slices.Contains(transportHeaders, canonical) {
		return fmt.Errorf("the header %s belongs to the transport and cannot be set", canonical)
	}
	return nil
}

// CheckURL says why nothing can be sent to an address. The address itself, which may hold a secret, is not in the error.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("is no url")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("names no host")
	case u.User != nil:
		return errors.New("holds a user name; write an Authorization header instead")
	case u.Fragment != "":
		return errors.New("must not have a part after #")
	}
	return nil
}
