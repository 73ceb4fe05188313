package mcpguard

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// CheckLoopback says why an address such as 127.0.0.1:7420 may not be served: any other machine could reach it, or it
// is no address.
func CheckLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("%q is no address; write one such as 127.0.0.1:7420", address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q has no usable port; write an address such as 127.0.0.1:7420", address)
	}
	if !loopback(host) {
		return fmt.Errorf("%q is not a loopback address; only 127.0.0.0/8, [::1] and localhost are served as yet", address)
	}
	return nil
}

// loopback tells whether a host is this machine and nothing else, by its name alone.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == "" && !ip.Is4In6()
}

// refused says why a request is not taken at all: it was meant for another host (a name that was made to point here),
// or a web page of another origin sends it.
func refused(r *http.Request) (status int, what string) {
	if !ourHost(r) {
		return http.StatusForbidden, "the Host header names another host"
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !loopback(u.Hostname()) || u.User != nil {
			return http.StatusForbidden, "requests of this origin are not taken"
		}
	}
	return 0, ""
}

// ourHost tells whether the Host header names this machine and the port that the request came to.
func ourHost(r *http.Request) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]"), "80"
	}
	if !loopback(host) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	_, ours, err := net.SplitHostPort(local.String())
	return err == nil && port == ours
}

// badPost says why the headers of a POST are not those of a message.
func badPost(h http.Header) (status int, what string) {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, "the Content-Type must be application/json"
	}
	if h.Get("Content-Encoding") != "" {
		return http.StatusUnsupportedMediaType, "a Content-Encoding is not supported"
	}
	if !accepts(h, "application/json") || !accepts(h, "text/event-stream") {
		return http.StatusNotAcceptable, "the client must accept both application/json and text/event-stream"
	}
	return 0, ""
}

// accepts tells whether a client takes a media type. One that does not say takes any.
func accepts(h http.Header, kind string) bool {
	lists := h.Values("Accept")
	if len(lists) == 0 {
		return true
	}
	group, _, _ := strings.Cut(kind, "/")
	for part := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		got, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
			continue
		}
		if got == kind || got == "*/*" || got == group+"/*" {
			return true
		}
	}
	return false
}
