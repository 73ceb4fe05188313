package evals

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// configuration is what mcp-server is started with for one run.
type configuration struct {
	homes    map[string]string // names of servers, by server and tool of the run
	servers  map[string]*stand
	tools    map[string]map[string]any
	defaults map[string]any
	context  map[string]any
}

// stand is a server of a configuration, as the downstream has it.
type stand struct {
	tools   map[string]json.RawMessage // as they are listed
	queries map[string][]*query        // by the tool that they ask
}

func (s *stand) list() []json.RawMessage {
	var list []json.RawMessage
	for _, name := range sortedKeys(s.tools) {
		list = append(list, s.tools[name])
	}
	return list
}

// configure says what an arm's mcp-server is started with: the operator's file, as far as it is about tools, or what a careful
// operator would write. All times are pace times shorter.
func configure(o *Options, a *Arm, f *Fault, list []*shape) (*configuration, error) {
	c := &configuration{homes: map[string]string{}, servers: map[string]*stand{}, tools: map[string]map[string]any{},
		defaults: map[string]any{"timeout": unsaid.String(), "answer_within": paced(registry.DefaultAnswerWithin)}}
	file := o.Policy
	if !a.policy {
		file = nil
	}
	if file != nil {
		c.read(file, a, f)
	}
	for _, s := range list {
		if err := c.add(s, o, a, f, file); err != nil {
			return nil, err
		}
	}
	if a.policy {
		c.context = contextOf(file)
	}
	return c, nil
}

// read takes over what the operator's file says of tools, without what the arm's downstream does not do.
func (c *configuration) read(file *Policy, a *Arm, f *Fault) {
	for _, name := range file.Servers {
		c.stand(name)
	}
	maps.Copy(c.defaults, faster(file.Defaults).(map[string]any))
	for pattern, rule := range file.Tools {
		rule := faster(rule).(map[string]any)
		switch key, ok := rule["downstream_key"].(map[string]any); {
		case ok && a.keyed:
			rule["downstream_key"] = forgetting(key, f)
		case ok && a.lookup: // it may be the key that is looked for
			delete(key, "window")
		default:
			delete(rule, "downstream_key")
		}
		if !a.lookup {
			delete(rule, "lookup")
		}
		if approval, ok := rule["approval"].(map[string]any); ok {
			delete(approval, "reviewers") // of whom there is one here
		}
		c.tools[pattern] = rule
		if server, tool, _ := strings.Cut(pattern, "/"); !strings.Contains(pattern, "*") {
			c.offer(server, tool, anyTool(tool, false))
		}
	}
}

// forgetting is a downstream_key whose window is as short as it takes to play that the downstream forgets it, if it is to.
func forgetting(key map[string]any, f *Fault) map[string]any {
	if f.window && key["window"] != nil {
		key["window"] = day.String()
	}
	return key
}

// add adds a tool of the run.
func (c *configuration) add(s *shape, o *Options, a *Arm, f *Fault, file *Policy) error {
	d := Declared{}
	home := "s" + fmt.Sprint(len(c.servers))
	if file != nil {
		var err error
		if d, err = s.declared(a, file); err != nil {
			return err
		}
		home = d.Server
	} else if known := c.homes[s.server]; known != "" {
		home = known
	}
	c.homes[s.server], c.homes[s.server+"/"+s.tool] = home, home
	listed := o.Process.offered[s.tool]
	switch {
	case listed != nil:
	case file != nil:
		listed = anyTool(s.tool, false)
	default:
		listed, _ = json.Marshal(map[string]any{"name": s.tool, "inputSchema": s.schema()})
	}
	c.offer(home, s.tool, listed)
	action := home + "/" + s.tool
	if a.policy && file == nil {
		c.tools[action] = s.declaration(listed)
	}
	if c.tools[action] == nil && a.policy {
		c.tools[action] = map[string]any{}
	}
	if a.keyed && !o.Process.Behind() && (file == nil || d.Policy.DownstreamKey.Meta == keyMember) {
		c.tools[action]["downstream_key"] = forgetting(map[string]any{"meta": keyMember, "window": paced(window)}, f)
	}
	if a.policy && f.story == rejects {
		c.tools[action]["approval"] = "always"
	}
	if a.lookup {
		return c.look(o, s, home, d.Policy.Lookups)
	}
	return nil
}

// look adds the reads by which a tool's lookups ask. A tool whose policy has none gets the downstream's own, if it is ours.
func (c *configuration) look(o *Options, s *shape, home string, lookups []registry.Lookup) error {
	if len(lookups) == 0 && !o.Process.Behind() {
		l, err := ownLookup()
		if err != nil {
			return err
		}
		lookups = []registry.Lookup{l}
		c.tools[home+"/"+s.tool]["lookup"] = []any{map[string]any{"tool": lookupTool, "arguments": l.Arguments,
			"applied": l.Applied.String(), "absent": l.Absent.String(), "settle": paced(l.Settle)}}
	}
	at := c.stand(home)
	for i, l := range lookups {
		if l.Tool == "" {
			return fmt.Errorf("the policy of %s/%s: lookup %d is an HTTP request of its own, which is not sent on real processes", home, s.tool, i+1)
		}
		switch offered := o.Process.offered[l.Tool]; {
		case offered != nil:
			c.offer(home, l.Tool, offered)
		case o.Process.Behind():
			return fmt.Errorf("the policy of %s/%s: lookup %d asks the tool %s, which the server does not have", home, s.tool, i+1, l.Tool)
		default:
			at.tools[l.Tool] = anyTool(l.Tool, true)
		}
		q, err := newQuery(s.tool, l)
		if err != nil {
			return fmt.Errorf("the policy of %s/%s: lookup %d: %w", home, s.tool, i+1, err)
		}
		at.queries[l.Tool] = append(at.queries[l.Tool], q)
	}
	return nil
}

func (c *configuration) stand(server string) *stand {
	if c.servers[server] == nil {
		c.servers[server] = &stand{map[string]json.RawMessage{}, map[string][]*query{}}
	}
	return c.servers[server]
}

func (c *configuration) offer(server, tool string, listed json.RawMessage) {
	if at := c.stand(server); at.tools[tool] == nil {
		at.tools[tool] = listed
	}
}

// anyTool lists a tool of which nothing is known but its name, and that it reads.
func anyTool(name string, reads bool) json.RawMessage {
	tool := map[string]any{"name": name, "inputSchema": map[string]string{"type": "object"}}
	if reads {
		tool["annotations"] = map[string]bool{"readOnlyHint": true}
	}
	text, _ := json.Marshal(tool)
	return text
}

// file is the configuration as mcp-server reads it, for a downstream at an address.
func (c *configuration) file(address string, d *desk) map[string]any {
	servers := map[string]any{}
	for name := range c.servers {
		servers[name] = map[string]string{"url": address + "/" + name}
	}
	file := map[string]any{"version": 1, "mcpServers": servers, "shutdown": "1s", "defaults": c.defaults, "reviewers": d.reviewers()}
	if len(c.tools) > 0 {
		file["tools"] = c.tools
	}
	if c.context != nil {
		file["context"] = c.context
	}
	return file
}

// contextOf is where the facts come from: those that the file declares from the client's _meta, but for those whose value it
// gives itself. Without a file there are those that the derived policy asks for.
func contextOf(file *Policy) map[string]any {
	const said = "said by the client"
	f := keyderive.Facts{Tenant: said, Workflow: said, SourceEvent: said, Request: said, Run: said, Step: said}
	if file != nil {
		file.Known(&f)
	}
	sources := map[string]any{}
	for _, name := range factNames {
		switch value, _ := f.Get(name); {
		case value == "":
		case value != said:
			sources[name] = map[string]string{"value": value}
		case name != "tenant" && name != "workflow": // these are the default's, in process too
			sources[name] = map[string]string{"meta": "/dev.toolguard~1context/" + name}
		}
	}
	return sources
}

// declaration is the derived policy of a tool, as a configuration has it; listed is the tool as its server lists it. Arguments
// that its schema does not have are not named.
func (s *shape) declaration(listed json.RawMessage) map[string]any {
	var tool struct {
		InputSchema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"inputSchema"`
	}
	_ = json.Unmarshal(listed, &tool)
	pointers := func(list []string, names ...string) []string {
		for _, name := range names {
			if _, ok := tool.InputSchema.Properties[name]; ok || tool.InputSchema.Properties == nil {
				list = append(list, "/"+name)
			}
		}
		return list
	}
	d := map[string]any{"effect": "write", "once_per": pointers([]string{"source_event", "step"}, s.target...),
		"timeout": paced(timeout), "answer_within": paced(registry.DefaultAnswerWithin),
		"classify": map[string]any{"not_applied": []string{"result.is_error"}}}
	if free := pointers(nil, s.free...); free != nil {
		d["may_differ"] = free
	}
	return d
}

func paced(d time.Duration) string { return (d / pace).String() }

// durations are the keys of a policy that hold one.
var durations = []string{"timeout", "answer_within", "repeat_after", "retention", "expires", "window", "settle"}

// faster is a part of a configuration with its durations pace times shorter.
func faster(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, e := range x {
			out[name] = faster(e)
			if text, ok := e.(string); ok && slices.Contains(durations, name) {
				if d, err := time.ParseDuration(text); err == nil {
					out[name] = paced(d)
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = faster(e)
		}
		return out
	}
	return v
}
