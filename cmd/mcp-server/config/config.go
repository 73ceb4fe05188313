// Package config reads toolguard.yaml: which servers are guarded, where the runtime facts of a call come from, and what
// the operator says about each tool. [Load] reports every fault of a file at once, each with file, line and key path.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/notify"
	"toolguard.dev/registry"
)

// Schema is the JSON Schema of the configuration file, for editors.
//
//go:embed toolguard.schema.json
var Schema []byte

// SchemaFile is the name under which [Schema] is shipped.
const SchemaFile = "toolguard.schema.json"

// DefaultShutdown is how long a server that is told to stop waits for what is in flight.
const DefaultShutdown = 10 * time.Second

// Config is a configuration without faults.
type Config struct {
	File          string            // as it was named
	Observe       bool              // dispatch everything, record what would have been done
	Ledger        string            // folder of the ledger; "" where the file does not say
	Shutdown      time.Duration     // how long to wait for what is in flight
	OperationTool bool              // offer toolguard_operation
	Listen        string            // serve HTTP on this loopback address too; "": do not
	Servers       []Server          // in the order of the file; at least one is not disabled, or there are HTTPTools
	HTTPTools     []*registry.Entry // tools that are requests of their own, with their policies
	Context       Context
	Reviewers     []Reviewer        // in the order of the file; none: the local user decides
	Notify        []notify.Endpoint // who is told of what waits for a person

	defaults registry.Policy
	rules    []rule
	requests []httpTool
}

// Load reads the configuration file at path. What env does not have counts as an unset environment variable. Every
// fault of the file is in the returned [Faults]; a file that cannot be opened is another error.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, env)
}

// read reads a file of bounded size; one byte too many is enough to be refused later.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, plain(err))
	}
	if info.IsDir() {
		return nil, fmt.Errorf("configuration %s: is a folder", path)
	}
	if info.Size() > maxBytes {
		return nil, Faults{{path, 1, "", fmt.Sprintf("the file has %d bytes; at most %d are read", info.Size(), maxBytes)}}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, plain(err))
	}
	return data, nil
}

// plain takes the path out of a file error, where the message has it already.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Parse is [Load] for a text at hand; name stands for the file, and relative paths count from its folder.
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	c, r := parse(name, data, env)
	if len(r.faults) > 0 {
		return nil, r.faults.sorted()
	}
	return c, nil
}

func parse(name string, data []byte, env func(string) (string, bool)) (*Config, *reader) {
	r := &reader{file: name, env: env}
	c := Presumed()
	c.File = name
	root := parseTree(data, func(line int, path, what string) { r.faultAt(line, path, "%s", what) })
	switch {
	case root == nil && len(r.faults) > 0:
	case root == nil || root.kind == null:
		r.faultAt(1, "", "the file says nothing; it needs mcpServers at least")
	default:
		r.config(value{root, ""}, c)
	}
	return c, r
}

// LedgerOf reads only which folder the ledger of a configuration is in, "" if it does not say, so that the ledger can
// be looked at while the rest of the file has faults, or its environment variables are not set.
func LedgerOf(path string, env func(string) (string, bool)) (string, error) {
	data, err := read(path)
	if err != nil {
		return "", err
	}
	c, r := parse(path, data, env)
	var faults Faults
	for _, f := range r.faults.sorted() {
		if f.Path == "" || f.Path == "store" {
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return "", faults
	}
	return c.Ledger, nil
}

// config reads the whole file.
func (r *reader) config(v value, c *Config) {
	if v.kind != mapping {
		r.wrong(v, "a mapping with the keys of a toolguard configuration")
		return
	}
	r.object(v, fields{
		"version": func(v value) {
			if n, ok := r.spelled(v); ok && n != "1" {
				r.fault(v, "must be 1, not %s", brief(n))
			}
		},
		"mode": func(v value) {
			mode, _ := r.oneOf(v, "mode", "enforce", "observe")
			c.Observe = mode == "observe"
		},
		"store": func(v value) { c.Ledger = r.store(v) },
		"shutdown": func(v value) {
			if d, ok := r.duration(v); ok {
				c.Shutdown = d
			}
		},
		"operation_tool": func(v value) {
			if b, ok := r.boolean(v); ok {
				c.OperationTool = b
			}
		},
		"mcpServers": func(v value) { c.Servers = r.servers(v) },
		"httpTools":  func(v value) { c.requests = r.httpTools(v) },
		"context":    func(v value) { c.Context = r.context(v) },
		"defaults":   func(v value) { c.defaults = r.defaults(v) },
		"tools":      func(v value) { c.rules = r.tools(v) },
		"http":       func(v value) { c.Listen = r.http(v) },
		"reviewers":  func(v value) { c.Reviewers = r.reviewers(v) },
		"notify":     func(v value) { c.Notify = r.notify(v) },
	})
	if v.member("mcpServers") == nil && v.member("httpTools") == nil {
		r.faultAt(v.line, "mcpServers", "is missing: no server to guard")
	}
	r.unknownServers(c)
	r.compileTools(c)
	r.headlessKeys(c)
	r.strangers(c)
}

// store reads "badger:PATH"; a relative path counts from the folder of the configuration.
func (r *reader) store(v value) string {
	if _, ok := r.text(v); !ok {
		return ""
	}
	s, ok := r.expanded(v, false)
	if !ok {
		return ""
	}
	path, ok := strings.CutPrefix(s, "badger:")
	if !ok {
		r.fault(v, "%q is no store; write badger:PATH", brief(s))
		return ""
	}
	if path == "" {
		r.fault(v, "badger: has no path after it")
		return ""
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			r.fault(v, "there is no home folder for ~")
			return ""
		}
		return filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.file), path)
	}
	return filepath.Clean(path)
}

// http reads where to listen.
func (r *reader) http(v value) string {
	listen, before := "", len(r.faults)
	r.object(v, fields{"listen": func(v value) {
		if _, ok := r.text(v); !ok {
			return
		}
		s, ok := r.expanded(v, false)
		if !ok {
			return
		}
		if err := mcpguard.CheckLoopback(s); err != nil {
			r.fault(v, "%s", err)
			return
		}
		listen = s
	}})
	if listen == "" && len(r.faults) == before {
		r.fault(v, "names no address; write http: {listen: 127.0.0.1:7420}")
	}
	return listen
}

// Presumed is the configuration of a server that nobody described.
func Presumed() *Config {
	return &Config{Shutdown: DefaultShutdown, OperationTool: true, Context: Context{Preset: "auto"}}
}
