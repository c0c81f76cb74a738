package cri

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that thin stands on
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// thin is protobuf of which only what this package takes is decoded. Of a runtime's answers tenants
// fill the most: a pod's annotations have up to 256 KiB, its labels and hooks a megabyte, and what
// it has in its environment stands in the verbose status twice, six bytes for one. So an answer is
// read as it came, chunk by chunk, and what is not taken is stepped over: it is there once, never a
// second time.
type thin struct{ encoding.CodecV2 }

func newThin() thin { return thin{encoding.GetCodecV2("proto")} }

// Unmarshal decodes what is taken of a message (see taken); of those that are not listed there,
// all.
func (c thin) Unmarshal(data mem.BufferSlice, v any) error {
	if a, ok := v.(interface {
		decode(data mem.BufferSlice) error
	}); ok {
		return a.decode(data)
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode a %T: no protobuf message", v)
	}
	of := taken[m.ProtoReflect().Descriptor().FullName()]
	if of == nil {
		return c.CodecV2.Unmarshal(data, v)
	}
	p := pruner{chunks: data}
	text, err := p.message(data.Len(), of, nil)
	if err != nil {
		return err
	}
	return proto.Unmarshal(text, m)
}

// Bounds of what is kept of an answer, beside that of the answer as a whole. A kubelet's names and
// paths are far below; what is longer is absent.
const (
	maxText    = 4 << 10 // bytes of a string
	maxEntries = 64      // entries of the maps of a message, beside those that decide (see decides)
	// of a list: a node has some hundred pods, and keeps a few dead containers of each
	maxItems = 20_000
	// of the lists of strings in one of them, the first: one image has as many tags as its owner likes
	maxWithin = 1000
)

var (
	errNoProto = errors.New("malformed message")
	// errTooMany becomes ErrTooLarge: grpc passes on an error of the codec by its words only.
	errTooMany = fmt.Errorf("more than %d items, larger than max", maxItems)
)

// part is what is taken of a message. Numbers are taken as they are, strings if they are no longer
// than maxText.
type part struct {
	fields map[protowire.Number]*part // of a message; nil: it is none
	list   bool                       // there may be several
	// of a map of strings: whether one is taken when n others were; nil: it is none
	keys func(key []byte, n int) bool
	json map[string]*member // of such a map: values that are JSON, by key
}

// pruner reads a message and writes a shorter one.
type pruner struct {
	chunks mem.BufferSlice // that come after cur
	cur    []byte
	last   mem.BufferSlice // cur is the data of its first
	from   io.Reader       // what comes after them; nil: nothing does
	room   []byte          // that this is read into
	broken error           // why it ended early
	// what was read is given back at once: a list of megabytes gives its room to what is made of it
	frees bool
	at    int // bytes read
	depth int // of the message that is read; 1: the answer
	inner int // how many lists within its items it is in
	items int // of the answer's lists
}

// more makes cur hold a byte, if there is one.
func (p *pruner) more() bool {
	for len(p.cur) == 0 {
		if len(p.chunks) == 0 {
			if !p.read() {
				return false
			}
			continue
		}
		if p.frees && p.last != nil { // grpc frees what it finds in its place
			p.last[0].Free()
			p.last[0] = mem.SliceBuffer(nil)
		}
		p.cur, p.last, p.chunks = p.chunks[0].ReadOnlyData(), p.chunks, p.chunks[1:]
	}
	return true
}

// read makes cur what comes next of an answer that is read while it comes.
func (p *pruner) read() bool {
	if p.from == nil || p.broken != nil {
		return false
	}
	n, err := p.from.Read(p.room)
	if p.cur = p.room[:n]; err != nil && n == 0 {
		p.broken = err
	}
	return p.broken == nil
}

// step goes on within cur.
func (p *pruner) step(n int) {
	p.cur = p.cur[n:]
	p.at += n
}

func (p *pruner) varint() (v uint64, ok bool) {
	for shift := 0; shift < 64 && p.more(); shift += 7 {
		b := p.cur[0]
		p.step(1)
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// take appends the next n bytes.
func (p *pruner) take(n int, out []byte) ([]byte, bool) {
	for n > 0 {
		if !p.more() {
			return out, false
		}
		here := min(n, len(p.cur))
		out = append(out, p.cur[:here]...)
		p.step(here)
		n -= here
	}
	return out, true
}

func (p *pruner) skip(n int) bool {
	for n > 0 {
		if !p.more() {
			return false
		}
		here := min(n, len(p.cur))
		p.step(here)
		n -= here
	}
	return true
}

// message appends what is taken of a message of n bytes.
func (p *pruner) message(n int, of *part, out []byte) ([]byte, error) {
	end, has := p.at+n, counts{}
	p.depth++
	defer func() { p.depth-- }()
	for p.at < end {
		tag, ok := p.varint()
		number, kind := protowire.DecodeTag(tag)
		if !ok || number < protowire.MinValidNumber {
			return nil, errNoProto
		}
		f := of.fields[number]
		length := uint64(0)
		switch kind {
		case protowire.VarintType:
			v, whole := p.varint()
			if ok = whole; f != nil {
				out = protowire.AppendVarint(protowire.AppendVarint(out, tag), v)
			}
		case protowire.Fixed32Type: // the CRI has neither of these two
			ok = p.skip(4)
		case protowire.Fixed64Type:
			ok = p.skip(8)
		case protowire.BytesType:
			if length, ok = p.varint(); ok && length <= uint64(max(0, end-p.at)) {
				var err error
				if out, err = p.value(tag, int(length), f, &has, out); err != nil {
					return nil, err
				}
				continue
			}
			ok = false
		default: // groups, which proto3 has none of
			ok = false
		}
		if !ok {
			return nil, errNoProto
		}
	}
	if p.at != end {
		return nil, errNoProto
	}
	return out, nil
}

// each hands over what is taken of each item of a list's message of n bytes. The text is the
// caller's until it returns.
func (p *pruner) each(n int, of *part, item func(text []byte) error) error {
	p.depth = 1
	var text []byte
	for p.at < n {
		tag, ok := p.varint()
		number, kind := protowire.DecodeTag(tag)
		if !ok || number < protowire.MinValidNumber || kind != protowire.BytesType &&
			!p.skipNumber(kind) {
			return errNoProto
		}
		if kind != protowire.BytesType {
			continue
		}
		length, ok := p.varint()
		if !ok || length > uint64(max(0, n-p.at)) {
			return errNoProto
		}
		f := of.fields[number]
		if f == nil || f.fields == nil {
			if !p.skip(int(length)) {
				return errNoProto
			}
			continue
		}
		if p.items++; p.items > maxItems {
			return errTooMany
		}
		var err error
		if text, err = p.message(int(length), f, text[:0]); err == nil {
			err = item(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skipNumber steps over a number.
func (p *pruner) skipNumber(kind protowire.Type) bool {
	switch kind {
	case protowire.VarintType:
		_, ok := p.varint()
		return ok
	case protowire.Fixed32Type:
		return p.skip(4)
	case protowire.Fixed64Type:
		return p.skip(8)
	}
	return false
}

// counts is what a message has: entries of its maps, and items of its lists, of strings and of
// messages.
type counts struct{ entries, items, messages int }

// value appends a field that has a length.
func (p *pruner) value(tag uint64, n int, of *part, has *counts, out []byte) ([]byte, error) {
	switch {
	case of == nil || !of.list:
	case p.depth == 1:
		if p.items++; p.items > maxItems {
			return nil, errTooMany
		}
	case of.fields == nil:
		if has.items++; has.items > maxWithin {
			of = nil
		}
	}
	ok := true
	switch {
	case of == nil:
		ok = p.skip(n)
	case of.keys != nil:
		return p.entry(tag, n, of, &has.entries, out)
	case of.fields != nil:
		return p.within(tag, n, of, has, out)
	case n > maxText:
		ok = p.skip(n)
	default:
		out = protowire.AppendVarint(protowire.AppendVarint(out, tag), uint64(n))
		out, ok = p.take(n, out)
	}
	if !ok {
		return nil, errNoProto
	}
	return out, nil
}

// within appends a message. In a list below an answer's items one of which nothing is taken is left
// out, and does not count: of a container's mounts, of which a tenant may have thousands, only
// those of images do. Of those that count none is left out, for they might be in use.
func (p *pruner) within(tag uint64, n int, of *part, has *counts, out []byte) ([]byte, error) {
	from, item := len(out), p.depth > 1 && of.list
	at := begin(&out, tag)
	if item {
		p.inner++
		defer func() { p.inner-- }()
	}
	out, err := p.message(n, of, out)
	switch {
	case err != nil:
		return nil, err
	case p.inner > 0 && len(out) == at:
		return out[:from], nil
	case item:
		if has.messages++; has.messages > maxItems {
			return nil, errTooMany
		}
	}
	end(out, at)
	return out, nil
}

// lengthSize is how many bytes a length takes that is written after what it counts: a varint may
// have zeros at its end.
const lengthSize = 4

// begin appends a tag and room for the length of what follows, which end writes.
func begin(out *[]byte, tag uint64) (at int) {
	*out = append(protowire.AppendVarint(*out, tag), 0, 0, 0, 0)
	return len(*out)
}

func end(out []byte, at int) {
	n := len(out) - at
	for i := range lengthSize {
		out[at-lengthSize+i] = byte(n&0x7f) | 0x80
		n >>= 7
	}
	out[at-1] &= 0x7f
}

// entry appends an entry of a map, {key = 1, value = 2}, if its key is one that is taken. The key
// comes first, as all write it that the agent knows; JSON that comes before its key is not taken.
func (p *pruner) entry(tag uint64, n int, of *part, entries *int, out []byte) ([]byte, error) {
	from, until := len(out), p.at+n
	at := begin(&out, tag)
	var key []byte
	taken := false
	for p.at < until {
		inner, ok := p.varint()
		length, ok2 := p.varint()
		number, kind := protowire.DecodeTag(inner)
		if !ok || !ok2 || kind != protowire.BytesType || length > uint64(max(0, until-p.at)) {
			return nil, errNoProto
		}
		value := of.json[string(key)]
		switch {
		case number == 2 && value != nil:
			text := begin(&out, inner)
			out = p.json(int(length), value, out)
			end(out, text)
		case length > maxText:
			ok = p.skip(int(length))
		default:
			out = protowire.AppendVarint(protowire.AppendVarint(out, inner), length)
			text := len(out)
			if out, ok = p.take(int(length), out); number == 1 {
				key = out[text:]
				taken = of.keys(key, *entries)
			}
		}
		if !ok {
			return nil, errNoProto
		}
	}
	if p.at != until {
		return nil, errNoProto
	}
	if !taken {
		return out[:from], nil
	}
	*entries++
	end(out, at)
	return out, nil
}
