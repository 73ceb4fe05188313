package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"toolguard.dev/notify"
)

const maxEndpoints = 16

// notify reads who is told of what waits for a person.
func (r *reader) notify(v value) []notify.Endpoint {
	var taken []string
	out, ok := listOf(r, v, func(v value) (e notify.Endpoint, ok bool) {
		if v.kind != mapping {
			r.wrong(v, "an endpoint: {url: \"https://…\", secret: \"${HOOK_SECRET}\"}")
			return e, false
		}
		before := len(r.faults)
		r.object(v, fields{
			"url": func(v value) {
				s, ok := r.expanded(v, false)
				if !ok {
					return
				}
				if what := badEndpoint(s); what != "" {
					r.fault(v, "%s", what)
				} else if slices.Contains(taken, s) {
					r.fault(v, "is in the list already; name it once, with all that it is to be told of")
				}
				taken, e.URL = append(taken, s), s
			},
			"secret": func(v value) {
				s, ok := r.expanded(v, false)
				if !ok {
					return
				}
				secret, err := notify.ParseSecret(s)
				if err != nil {
					r.fault(v, "%s", err)
				}
				e.Secret = secret
			},
			"on": func(v value) {
				e.On, _ = listOf(r, v, func(v value) (string, bool) { return r.oneOf(v, "topic", notify.Topics...) })
				if v.kind == list && len(v.items) == 0 {
					r.fault(v, "is empty; write %s", strings.Join(notify.Topics, ", "))
				}
			},
		})
		for _, name := range []string{"url", "secret"} {
			if v.member(name) == nil {
				r.faultAt(v.line, join(v.path, name), "is missing")
			}
		}
		if v.member("on") == nil {
			e.On = notify.Topics
		}
		return e, len(r.faults) == before
	})
	if len(out) > maxEndpoints {
		r.fault(v, "has %d endpoints; there may be %d", len(out), maxEndpoints)
	}
	if !ok {
		return nil
	}
	return out
}

// badEndpoint says why nothing can be sent to an address; it does not quote it, for it may hold a secret.
func badEndpoint(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "is no address; write https://HOST/PATH"
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "is http, which anybody on the way can read; write https, or an address of this machine"
	case u.User != nil:
		return "holds a user; what proves who sends is the signature"
	case u.Fragment != "":
		return "has a # part, which is never sent"
	}
	return ""
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
