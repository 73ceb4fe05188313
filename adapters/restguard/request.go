package restguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"toolguard.dev/keyderive"
	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
)

// Request is an HTTP request with placeholders: {{args.NAME}} (and {{args.NAME.MEMBER}}), {{key}}, {{context.FACT}}. A
// value is escaped for the place where it stands. A header, a query or form field, or a member of JSON that is nothing
// but one placeholder is left out where there is no such value; a list makes a field for each of its elements.
// Elsewhere a placeholder without a value keeps the request from being sent.
type Request struct {
	Method string            // GET, HEAD, POST, PUT, PATCH or DELETE
	URL    string            // http or https; placeholders only in its path and query
	Query  map[string]string // fields added to the URL's query
	Header map[string]string
	// At most one of these is the body.
	JSON json.RawMessage   // a JSON value
	Form map[string]string // fields, URL-encoded
	Text string            // plain text, unless a Content-Type is set
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// maxBody is how large the body of a request may come to be.
const maxBody = 4 << 20

// request is a Request that was found fit.
type request struct {
	Request
	server  string            // scheme and host
	path    []string          // the path's segments, with placeholders
	query   string            // the URL's own, with placeholders
	header  map[string]string // by canonical name
	json    any
	names   []string // of all placeholders, in order
	secrets []string // what must not be told where the server says it back
}

func canonical(name string) string { return http.CanonicalHeaderKey(name) }

// parse checks a request.
func (r Request) parse() (*request, error) {
	p := &request{Request: r, header: map[string]string{}}
	if !slices.Contains(methods, r.Method) {
		return nil, fmt.Errorf("the method is %q, which is none of %s", r.Method, strings.Join(methods, ", "))
	}
	if err := p.parseURL(); err != nil {
		return nil, err
	}
	for name, value := range r.Header {
		if err := oncehttp.CheckHeader(name); err != nil {
			return nil, err
		}
		if _, twice := p.header[canonical(name)]; twice {
			return nil, fmt.Errorf("the header %s comes twice", name)
		}
		p.header[canonical(name)] = value
		p.hide(canonical(name), value)
	}
	if err := p.parseBody(); err != nil {
		return nil, err
	}
	p.names = registry.Placeholders([]any{r.URL, texts(r.Query), texts(r.Header), texts(r.Form), r.Text, p.json})
	slices.Sort(p.names)
	for _, name := range p.names {
		if err := registry.CheckTextTemplate("{{" + name + "}}"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func texts(fields map[string]string) any {
	var list []any
	for _, text := range fields {
		list = append(list, text)
	}
	return list
}

// parseURL takes the address apart. The address itself, which may hold a secret, is in no error.
func (p *request) parseURL() error {
	scheme, rest, _ := strings.Cut(p.URL, "://")
	rest, p.query, _ = strings.Cut(rest, "?")
	host, path, _ := strings.Cut(rest, "/")
	p.server = scheme + "://" + host
	p.path = strings.Split(path, "/")
	if err := oncehttp.CheckURL(p.server); strings.ContainsAny(host, "{}") {
		return errors.New("the url needs a plain host: placeholders may stand only behind it")
	} else if err != nil {
		return fmt.Errorf("the url %w", err)
	}
	switch {
	case strings.Contains(p.URL, "#"):
		return errors.New("the url must not have a part after #")
	case strings.ContainsFunc(p.URL, unicode.IsControl):
		return errors.New("the url holds a control character")
	}
	for _, part := range append(p.path, p.query) {
		if strings.Count(part, "{{") != len(registry.Placeholders(part)) {
			return errors.New("the url has a {{ without its }}, or a placeholder with / or ? in it")
		}
	}
	return nil
}

func (p *request) parseBody() error {
	bodies := 0
	for _, has := range []bool{p.JSON != nil, p.Form != nil, p.Text != ""} {
		if has {
			bodies++
		}
	}
	if bodies > 1 {
		return errors.New("the body is one of json, form and text")
	}
	if bodies > 0 && (p.Method == "GET" || p.Method == "HEAD") {
		return fmt.Errorf("a %s request has no body", p.Method)
	}
	if p.JSON == nil {
		return nil
	}
	var err error
	p.json, err = keyderive.Parse(p.JSON)
	return err
}

// hide notes the secrets in a header, whole and in parts.
func (p *request) hide(name, value string) {
	const shortest = 8
	lower := strings.ToLower(name)
	if !slices.ContainsFunc([]string{"auth", "cookie", "key", "token", "secret", "password"}, func(w string) bool { return strings.Contains(lower, w) }) {
		return
	}
	for _, secret := range append([]string{value}, strings.Fields(value)...) {
		if len(secret) >= shortest && !strings.Contains(secret, "{{") {
			p.secrets = append(p.secrets, secret)
		}
	}
}

// expand puts values in.
func (p *request) expand(v registry.Values) (*oncehttp.Request, error) {
	address, err := p.address(v)
	if err != nil {
		return nil, err
	}
	q := &oncehttp.Request{Method: p.Method, URL: address, Header: http.Header{"User-Agent": {"toolguard"}}}
	if q.Body, err = p.body(v, q.Header); err != nil {
		return nil, err
	}
	if len(q.Body) > maxBody {
		return nil, fmt.Errorf("the body comes to more than %d bytes", maxBody)
	}
	for name, text := range p.header {
		values, err := registry.ExpandField(text, v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the header %s: %w", name, err)
		case len(values) > 1:
			return nil, fmt.Errorf("the header %s has more than one value", name)
		case len(values) == 1 && strings.ContainsFunc(values[0], unicode.IsControl):
			return nil, fmt.Errorf("the header %s would hold a control character", name)
		case len(values) == 1:
			q.Header.Set(name, values[0])
		}
	}
	return q, nil
}

// address makes the URL. No value may lead to another place than its own.
func (p *request) address(v registry.Values) (string, error) {
	var b strings.Builder
	b.WriteString(p.server)
	for _, segment := range p.path {
		text, err := registry.ExpandText(segment, v, url.PathEscape)
		if err != nil {
			return "", err
		}
		if text != segment && (text == "." || text == "..") {
			return "", errors.New("an argument would change the path of the url")
		}
		b.WriteString("/" + text)
	}
	query, err := registry.ExpandText(p.query, v, url.QueryEscape)
	if err != nil {
		return "", err
	}
	more, err := fields(p.Query, v)
	if err != nil {
		return "", err
	}
	if encoded := more.Encode(); encoded != "" {
		query = strings.TrimPrefix(query+"&"+encoded, "&")
	}
	if query != "" {
		b.WriteString("?" + query)
	}
	return b.String(), nil
}

// body makes the body and says in the header what it is; nil: none.
func (p *request) body(v registry.Values, h http.Header) ([]byte, error) {
	switch {
	case p.JSON != nil:
		value, ok, err := registry.ExpandJSON(p.json, v)
		if err != nil || !ok {
			return nil, err
		}
		h.Set("Content-Type", "application/json")
		return keyderive.AppendCanonical(nil, value), nil
	case p.Form != nil:
		form, err := fields(p.Form, v)
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		return []byte(form.Encode()), err
	case p.Text != "":
		text, err := registry.ExpandText(p.Text, v, func(s string) string { return s })
		h.Set("Content-Type", "text/plain; charset=utf-8")
		return []byte(text), err
	}
	return nil, nil
}

// fields makes the fields of a form or a query.
func fields(templates map[string]string, v registry.Values) (url.Values, error) {
	out := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		values, err := registry.ExpandField(templates[name], v)
		if err != nil {
			return nil, fmt.Errorf("the field %s: %w", name, err)
		}
		if len(values) > 0 {
			out[name] = values
		}
	}
	return out, nil
}
