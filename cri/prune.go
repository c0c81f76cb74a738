package cri

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that pruningCodec extends
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// pruningCodec is a protobuf codec that decodes only the fields that this package needs. Tenants
// control most of the data in a runtime's answers. A pod's annotations have up to 256 KiB, and its
// labels and hooks up to a megabyte. Its environment is in the verbose status twice, with up to six
// bytes for each byte. The codec therefore reads the received chunks directly and skips other
// fields, so that an answer is in memory only once.
type pruningCodec struct{ encoding.CodecV2 }

func newPruningCodec() pruningCodec { return pruningCodec{encoding.GetCodecV2("proto")} }

// Name returns the empty content subtype, so that requests have gRPC's default content type,
// "application/grpc". CRI-O closes a connection whose first request has "application/grpc+proto".
func (pruningCodec) Name() string { return "" }

// Unmarshal decodes the needed fields of a message (see schemas), or all fields of a message
// without a schema.
func (c pruningCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if a, ok := v.(interface {
		decode(data mem.BufferSlice) error
	}); ok {
		return a.decode(data)
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode %T: not a protobuf message", v)
	}
	of := schemas[m.ProtoReflect().Descriptor().FullName()]
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

// Limits of the decoded fields, in addition to the limit of the whole answer. Names and paths from
// a kubelet are far below. A field above its limit is absent.
const (
	maxText    = 4 << 10 // bytes of a string
	maxEntries = 64      // entries of the maps of a message, without relevantKeys
	// items of a list: a node has some hundred pods with a few dead containers each
	maxItems = 20_000
	// strings in each list within an item, for example the tags of an image; the rest is dropped
	maxWithin = 1000
)

var (
	errMalformed = errors.New("malformed message")
	// errTooMany becomes ErrTooLarge: grpc preserves only the text of an error of the codec.
	errTooMany = fmt.Errorf("more than %d items, larger than max", maxItems)
)

// schema selects the fields of a message to decode. Numbers are always decoded, and strings if they
// are not longer than maxText.
type schema struct {
	fields map[protowire.Number]*schema // of a message; nil: not a message
	list   bool                         // repeated
	// of a map of strings: reports whether to decode an entry after n other entries; nil: not a map
	keys func(key []byte, n int) bool
	json map[string]*member // of a map: the needed parts of values that are JSON, by key
}

// pruner reads a message and writes a shorter one.
type pruner struct {
	chunks mem.BufferSlice // chunks after cur
	cur    []byte
	last   mem.BufferSlice // chunks from the one that cur is a part of
	from   io.Reader       // data after the chunks; nil: none
	room   []byte          // buffer for from
	broken error           // error of from
	// free each chunk after it was read, so that the decoded items can reuse the memory of a large
	// list
	frees bool
	at    int // bytes read
	depth int // of the current message; 1: the answer
	inner int // number of enclosing lists within an item of the answer
	items int // number of items of the answer's lists
}

// fill ensures that cur is not empty. It returns false at the end of the data.
func (p *pruner) fill() bool {
	for len(p.cur) == 0 {
		if len(p.chunks) == 0 {
			if !p.read() {
				return false
			}
			continue
		}
		if p.frees && p.last != nil { // replaced, because grpc frees all chunks later
			p.last[0].Free()
			p.last[0] = mem.SliceBuffer(nil)
		}
		p.cur, p.last, p.chunks = p.chunks[0].ReadOnlyData(), p.chunks, p.chunks[1:]
	}
	return true
}

// read sets cur to the next part of an answer that is decoded while it is received.
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

// step skips bytes within cur.
func (p *pruner) step(n int) {
	p.cur = p.cur[n:]
	p.at += n
}

func (p *pruner) varint() (v uint64, ok bool) {
	for shift := 0; shift < 64 && p.fill(); shift += 7 {
		b := p.cur[0]
		p.step(1)
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// appendNext appends the next n bytes.
func (p *pruner) appendNext(n int, out []byte) ([]byte, bool) {
	for n > 0 {
		if !p.fill() {
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
		if !p.fill() {
			return false
		}
		here := min(n, len(p.cur))
		p.step(here)
		n -= here
	}
	return true
}

// message appends the needed fields of a message of n bytes.
func (p *pruner) message(n int, of *schema, out []byte) ([]byte, error) {
	end, has := p.at+n, counts{}
	p.depth++
	defer func() { p.depth-- }()
	for p.at < end {
		tag, ok := p.varint()
		number, kind := protowire.DecodeTag(tag)
		if !ok || number < protowire.MinValidNumber {
			return nil, errMalformed
		}
		f := of.fields[number]
		length := uint64(0)
		switch kind {
		case protowire.VarintType:
			v, whole := p.varint()
			if ok = whole; f != nil {
				out = protowire.AppendVarint(protowire.AppendVarint(out, tag), v)
			}
		case protowire.Fixed32Type: // the CRI uses neither fixed type
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
		default: // groups do not exist in proto3
			ok = false
		}
		if !ok {
			return nil, errMalformed
		}
	}
	if p.at != end {
		return nil, errMalformed
	}
	return out, nil
}

// eachItem reads a message of n bytes that contains a list, and calls item with the needed fields
// of each item. item must not keep text.
func (p *pruner) eachItem(n int, of *schema, item func(text []byte) error) error {
	p.depth = 1
	var text []byte
	for p.at < n {
		tag, ok := p.varint()
		number, kind := protowire.DecodeTag(tag)
		if !ok || number < protowire.MinValidNumber || kind != protowire.BytesType &&
			!p.skipNumber(kind) {
			return errMalformed
		}
		if kind != protowire.BytesType {
			continue
		}
		length, ok := p.varint()
		if !ok || length > uint64(max(0, n-p.at)) {
			return errMalformed
		}
		f := of.fields[number]
		if f == nil || f.fields == nil {
			if !p.skip(int(length)) {
				return errMalformed
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

// skipNumber skips a number.
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

// counts holds three numbers of one message: entries of maps, items of lists of strings, and items
// of lists of messages.
type counts struct{ entries, items, messages int }

// value appends a field of n bytes, if it is needed.
func (p *pruner) value(tag uint64, n int, of *schema, has *counts, out []byte) ([]byte, error) {
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
		return p.nested(tag, n, of, has, out)
	case n > maxText:
		ok = p.skip(n)
	default:
		out = protowire.AppendVarint(protowire.AppendVarint(out, tag), uint64(n))
		out, ok = p.appendNext(n, out)
	}
	if !ok {
		return nil, errMalformed
	}
	return out, nil
}

// nested appends a message. In a list within an item of the answer, it omits a message without
// needed fields and does not count it: a tenant may give a container thousands of mounts, but only
// image mounts are needed. Too many counted messages are an error, because an omitted image could
// be in use.
func (p *pruner) nested(tag uint64, n int, of *schema, has *counts, out []byte) ([]byte, error) {
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

// lengthSize is the number of bytes of a length that is written after its content: a varint may
// have redundant bytes at its end.
const lengthSize = 4

// begin appends a tag and space for the length of the following content, which end writes.
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

// entry appends an entry of a map, {key = 1, value = 2}, if its key is needed. All known runtimes
// write the key first; a JSON value before its key is not decoded.
func (p *pruner) entry(tag uint64, n int, of *schema, entries *int, out []byte) ([]byte, error) {
	from, until := len(out), p.at+n
	at := begin(&out, tag)
	var key []byte
	taken := false
	for p.at < until {
		inner, ok := p.varint()
		length, ok2 := p.varint()
		number, kind := protowire.DecodeTag(inner)
		if !ok || !ok2 || kind != protowire.BytesType || length > uint64(max(0, until-p.at)) {
			return nil, errMalformed
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
			if out, ok = p.appendNext(int(length), out); number == 1 {
				key = out[text:]
				taken = of.keys(key, *entries)
			}
		}
		if !ok {
			return nil, errMalformed
		}
	}
	if p.at != until {
		return nil, errMalformed
	}
	if !taken {
		return out[:from], nil
	}
	*entries++
	end(out, at)
	return out, nil
}
