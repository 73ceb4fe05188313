package main

import (
	"context"
	"log/slog"
	"time"

	"toolguard.dev/telemetry"
)

// tracing is what the environment asks for; nil if it does not.
func (p *program) tracing(ctx context.Context, log *slog.Logger) (*telemetry.Tracing, error) {
	t, err := telemetry.OpenTracing(ctx, p.env, version(), log)
	if err != nil {
		return nil, usage{err}
	}
	return t, nil
}

// closeTracing sends the last spans; a collector that does not answer holds nothing up for long.
func closeTracing(t *telemetry.Tracing) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = t.Close(ctx)
}
