package podjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/internal/base/strict"
)

// maxDecoded bounds the memory of one decoded pod in bytes. Two characters of text, {}, become a
// container of 700 bytes.
const maxDecoded = 4 << 20

// MaxAsking is maxDecoded for an admission request: podstore always has as much memory for one.
const MaxAsking = 2 << 20

// maxDepth bounds the nesting of values. The walk is recursive, and a goroutine's stack does not
// shrink. The fields of a pod are a dozen levels deep, and the managed fields of an API server some
// more.
const maxDepth = 100

// guard walks a pod's text along the types of its fields without decoding it. It rejects values of
// other types, quantities that are slow to parse, text that would use too much memory or is nested
// too deep, and unknown fields if allowed.strict.
func guard(raw []byte, allowed bounds) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	g := guarding{dec: dec, allowed: allowed}
	if err := g.value(reflect.TypeFor[v1.Pod]()); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text after the pod")
	}
	return nil
}

// bounds are the limits for one pod's text.
type bounds struct {
	memory int  // bytes when decoded
	strict bool // unknown fields are rejected
	// unique: duplicate fields are rejected. The decoder reports only the first hundred unknown or
	// duplicate fields.
	unique bool
}

type guarding struct {
	dec     *json.Decoder
	path    []string
	cost    int // bytes
	allowed bounds
}

var (
	quantity    = reflect.TypeFor[resource.Quantity]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// value walks one value of type t; nil: it is skipped, or the type decodes itself.
func (g *guarding) value(t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		if err := g.pay(int(t.Size())); err != nil {
			return err
		}
	}
	if len(g.path) > maxDepth {
		return fmt.Errorf("%s: %w: nested deeper than %d values", g.at(), ErrTooLarge, maxDepth)
	}
	tok, err := g.dec.Token()
	if err != nil {
		return syntax(err)
	}
	if err := g.checkToken(t, tok); err != nil {
		return err
	}
	switch tok := tok.(type) {
	case string:
		return g.text(t, tok)
	case json.Number:
		return g.text(t, string(tok))
	case json.Delim:
		if t != nil && reflect.PointerTo(t).Implements(unmarshaler) {
			t = nil
		}
		if tok == '{' {
			err = g.object(t)
		} else {
			err = g.list(t)
		}
		if err == nil {
			_, err = g.dec.Token() // the closing delimiter
		}
		return syntax(err)
	}
	return nil // null, true, false
}

func (g *guarding) object(t reflect.Type) error {
	var fields map[string]reflect.Type
	var elem reflect.Type
	switch {
	case t == nil:
	case t.Kind() == reflect.Struct:
		fields = fieldsOf(t)
	case t.Kind() == reflect.Map:
		elem = t.Elem()
	}
	var seen map[string]bool
	if g.allowed.unique && t != nil {
		seen = map[string]bool{}
	}
	for g.dec.More() {
		tok, err := g.dec.Token()
		if err != nil {
			return syntax(err)
		}
		key, _ := tok.(string) // the decoder rejects other keys
		fieldType := elem
		g.path = append(g.path, "."+key)
		if fields != nil {
			known := false
			if fieldType, known = fields[key]; !known && g.allowed.strict {
				return fmt.Errorf("unknown field %q", g.at())
			}
		} else if elem != nil {
			// a map is about half empty
			if err := g.pay(2 * (int(elem.Size()) + len(key) + 16)); err != nil {
				return err
			}
		}
		if seen != nil && fieldType != nil {
			if seen[key] {
				return fmt.Errorf("duplicate field %q", g.at())
			}
			seen[key] = true
		}
		if err := g.value(fieldType); err != nil {
			return err
		}
		g.path = g.path[:len(g.path)-1]
	}
	return nil
}

func (g *guarding) list(t reflect.Type) error {
	var elem reflect.Type
	if t != nil && t.Kind() == reflect.Slice {
		elem = t.Elem()
	}
	for i := 0; g.dec.More(); i++ {
		if elem != nil {
			if err := g.pay(int(elem.Size())); err != nil {
				return err
			}
		}
		g.path = append(g.path, "["+strconv.Itoa(i)+"]")
		if err := g.value(elem); err != nil {
			return err
		}
		g.path = g.path[:len(g.path)-1]
	}
	return nil
}

func (g *guarding) text(t reflect.Type, text string) error {
	if t != quantity {
		return g.pay(len(text))
	}
	// trimmed, like its own decoder does
	if _, err := ParseQuantity(strings.TrimSpace(text)); err != nil {
		return g.wrongValue(err)
	}
	return nil
}

// at returns the current field, for messages.
func (g *guarding) at() string {
	return clip(clipLong(strings.TrimPrefix(strings.Join(g.path, ""), ".")))
}

func (g *guarding) pay(bytes int) error {
	if g.cost += bytes; g.cost > g.allowed.memory {
		return fmt.Errorf("%w: more than %d bytes of memory when decoded", ErrTooLarge, g.allowed.memory)
	}
	return nil
}

// fields caches the JSON fields of struct types, as the decoder sees them.
var fields sync.Map // reflect.Type: map[string]reflect.Type

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	out := strict.Fields(t)
	fields.Store(t, out)
	return out
}
