package eventguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
)

// lookup reads the identity at places in a body. Only what is on the way there must be beyond doubt: the rest may be
// JSON as senders write it, with half an emoji in a text that was cut.
func lookup(body []byte, pointers ...string) (string, error) {
	if !json.Valid(body) {
		return "", fmt.Errorf("%w: the body is not JSON", ErrIdentity)
	}
	var parts []string
	for _, pointer := range pointers {
		raw, err := find(body, pointer)
		if err != nil {
			return "", fmt.Errorf("%w: %s in the body: %w", ErrIdentity, pointer, err)
		}
		value, err := keyderive.Parse(raw)
		if err != nil {
			return "", fmt.Errorf("%w: %s in the body: %w", ErrIdentity, pointer, err)
		}
		switch v := value.(type) {
		case string:
			if v == "" {
				return "", fmt.Errorf("%w: %s in the body is empty", ErrIdentity, pointer)
			}
			parts = append(parts, v)
		case json.Number:
			parts = append(parts, string(keyderive.AppendCanonical(nil, v)))
		default:
			return "", fmt.Errorf("%w: %s in the body is neither a text nor a number", ErrIdentity, pointer)
		}
	}
	return together(parts)
}

var errAbsent = errors.New("is not there")

// find returns the value at a pointer in valid JSON.
func find(raw json.RawMessage, pointer string) (json.RawMessage, error) {
	if pointer == "" {
		return raw, nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		var err error
		switch raw = bytes.TrimSpace(raw); raw[0] {
		case '{':
			raw, err = member(raw, token)
		case '[':
			raw, err = element(raw, token)
		default:
			err = errAbsent
		}
		if err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// member returns a member of an object. One that comes twice is in doubt.
func member(raw json.RawMessage, name string) (found json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err = d.Token()
	for err == nil && d.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		if err == nil && key == name {
			if found != nil {
				return nil, errors.New("comes twice")
			}
			found = value
		}
	}
	if err == nil && found == nil {
		err = errAbsent
	}
	return found, err
}

func element(raw json.RawMessage, token string) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(list) || strconv.Itoa(i) != token {
		return nil, errAbsent
	}
	return list[i], nil
}
