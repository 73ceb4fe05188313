package main

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/notify"
	"toolguard.dev/sharedstore"
)

// notifying tells the configured endpoints of what waits for a person. It begins before the guard does, so that what an
// earlier process left is told of as well.
func notifying(ctx context.Context, store *sharedstore.Store, cfg *config.Config, l net.Listener, log *slog.Logger) (*notify.Notifier, error) {
	o := notify.Options{Process: store.Process(), Alive: store.Alive, Version: version(), Log: log, Owner: func(tool string) string {
		server, name, _ := strings.Cut(tool, "/")
		_, _, policy := cfg.Resolve(server, name, nil)
		return policy.Owner
	}}
	if l != nil {
		o.Link = func(key string) string { return "http://" + l.Addr().String() + "/operations/" + url.PathEscape(key) }
	}
	return notify.Start(ctx, store, cfg.Notify, o)
}
