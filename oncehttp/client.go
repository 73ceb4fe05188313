package oncehttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	dialTime = 10 * time.Second // to connect, and again for TLS

	// A connection that was idle for longer is not used again: servers close theirs, many after 5 s, and a request that
	// meets the closing is one of which nobody knows what became.
	idleConnection = 4 * time.Second
)

// NewClient returns a client for [Send]. Proxies come from the environment and certificates are checked as Go programs
// do; redirects are returned and not followed. It speaks HTTP/1.1, one request at a time on a connection, so that what
// was written on it belongs to one request. Response headers are at most maxHeader bytes.
func NewClient(maxHeader int64) *http.Client {
	dialer := &net.Dialer{Timeout: dialTime}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &outlet{Conn: c}, nil
			},
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTime,
			Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: idleConnection,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
