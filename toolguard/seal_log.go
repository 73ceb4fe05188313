package toolguard

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler returns a log handler that hides the secrets of recent calls, see [Seal.Redact], in what goes to h.
func (s *Seal) Handler(h slog.Handler) slog.Handler { return &redacting{h, s} }

type redacting struct {
	slog.Handler
	seal *Seal
}

func (h *redacting) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, h.seal.Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h *redacting) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, h.seal.Redact(v.String()))
	case slog.KindGroup:
		var list []slog.Attr
		for _, member := range v.Group() {
			list = append(list, h.attr(member))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(list...)}
	case slog.KindAny:
		text := fmt.Sprint(v.Any())
		if hidden := h.seal.Redact(text); hidden != text {
			return slog.String(a.Key, hidden)
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}

func (h *redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	list := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		list[i] = h.attr(a)
	}
	return &redacting{h.Handler.WithAttrs(list), h.seal}
}

func (h *redacting) WithGroup(name string) slog.Handler {
	return &redacting{h.Handler.WithGroup(name), h.seal}
}
