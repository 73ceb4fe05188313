package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

// endpoint is where serve serves.
type endpoint struct {
	flag       string // --http
	configured string // http.listen
	noStdio    bool   // --no-stdio
}

// listen opens the address for HTTP, if there is one.
func (e endpoint) listen(log *slog.Logger) (net.Listener, error) {
	address := e.flag
	if address == "" {
		address = e.configured
	}
	if address == "" {
		if e.noStdio {
			return nil, usage{errors.New("--no-stdio leaves nothing to serve: give --http ADDR, or http: {listen: ADDR} in the configuration")}
		}
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		log.Info("serving HTTP", "url", "http://"+l.Addr().String()+"/mcp", "console", "http://"+l.Addr().String()+"/")
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE) && e.flag == "" && !e.noStdio:
		// Every window of a client starts a server of its own on one configuration.
		log.Warn("the configured address for HTTP is taken, by another mcp-server most likely; serving stdio only", "listen", address)
		return nil, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("HTTP: %w; another mcp-server may serve there already, else give another port with --http", err)
	}
	return nil, fmt.Errorf("HTTP: %w", err)
}

// clients serves those on stdio and on HTTP, until one of both ends: the end of stdin is the end of all.
func (p *program) clients(ctx context.Context, gateway *mcpguard.Gateway, l net.Listener, desk http.Handler, stdio bool, end *ending) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var served sync.WaitGroup
	errs := make(chan error, 2)
	if l != nil {
		web, stopWeb := context.WithCancel(ctx)
		defer stopWeb()
		served.Go(func() {
			errs <- gateway.ServeHTTP(web, l, &mcpguard.HTTPOptions{Others: desk})
			stop()
		})
		served.Go(func() {
			select {
			case <-end.ended:
				stopWeb()
			case <-web.Done():
			}
		})
	}
	if stdio {
		served.Go(func() {
			errs <- gateway.ServeStdio(ctx, end, p.stdout)
			stop()
		})
	}
	served.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

// ending reads from the client and knows when that ended.
type ending struct {
	in    io.Reader
	at    atomic.Int64
	ended chan struct{}
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.in.Read(b)
	if err != nil {
		e.mark()
	}
	return n, err
}

// SyscallConn lets the gateway see whether something waits to be read.
func (e *ending) SyscallConn() (syscall.RawConn, error) {
	if c, ok := e.in.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (e *ending) mark() {
	if e.at.CompareAndSwap(0, time.Now().UnixNano()) {
		close(e.ended)
	}
}

// since is how long ago it ended; nothing if it has not.
func (e *ending) since() time.Duration {
	if at := e.at.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return 0
}
