package podstore

import (
	"fmt"
	"maps"
	"strings"

	"jettison/eviction"
	"jettison/internal/podstore/podjson"
)

// underway is one Put, with what it takes of the budget until it is over.
type underway struct {
	s      *Store
	by     By
	staged int      // bytes of objects that are not known already
	texts  int      // bytes of memory
	named  []*entry // that are known, or were
}

func (u *underway) end() {
	u.take(-u.staged, -u.texts)
	if len(u.named) == 0 {
		return
	}
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range u.named {
		if s.again[e]--; s.again[e] == 0 {
			delete(s.again, e)
		}
	}
	_, all := s.clients.memory(u.by)
	s.weigh(all)
}

// known is the entry that a new one equals, whoever put it; nil: there is none. It takes no memory a second time, and what it takes counts
// until the Put is over, whoever replaces it meanwhile.
func (u *underway) known(e *entry) *entry {
	s, uid := u.s, string(e.object.UID)
	known := s.known()
	old := known.same(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old == nil || s.clients.root[uid] != old && s.clients.members[uid] != old { // nobody counts it any more
		return nil
	}
	s.again[old]++
	u.named = append(u.named, old)
	return old
}

// share has a batch have the entries that its own equal: others may have put the same meanwhile.
func (u *underway) share(batch layer) {
	known := u.s.known()
	for uid, e := range batch {
		done := u.turn()
		if same := known.same(e); same != nil {
			batch[uid] = same
		}
		done()
	}
}

// take takes bytes of objects and of text into account, or no more.
func (u *underway) take(staged, texts int) {
	u.staged += staged
	u.texts += texts
	u.s.staged.Add(int64(staged))
	u.s.texts.Add(int64(texts))
	if u.by == ByRoot {
		u.s.roots.Add(int64(staged + texts))
	}
}

// text takes so many bytes of text into account, which is more than before. A decoder's buffer does not shrink.
func (u *underway) text(bytes int) error {
	more := textCosts*(bytes-freeText) - u.texts
	if more <= 0 {
		return nil
	}
	u.take(0, more)
	return u.room()
}

// turn waits until no other pod is decoded. done ends it.
func (u *underway) turn() (done func()) {
	s := u.s
	if u.by == ByRoot {
		s.decoding.Lock()
		return s.decoding.Unlock
	}
	s.turns.Lock()
	s.decoding.Lock()
	return func() {
		s.decoding.Unlock()
		s.turns.Unlock()
	}
}

// decode makes an entry of a pod's text, one pod at a time: what a pod takes before it is taken into account is there once.
func (u *underway) decode(raw []byte) (*entry, error) {
	defer u.turn()()
	e, err := newEntry(raw)
	if err != nil {
		return nil, err
	}
	if old := u.known(e); old != nil {
		return old, nil
	}
	u.take(e.size, 0)
	return e, u.room()
}

func newEntry(raw []byte) (*entry, error) {
	p, err := podjson.Pod(raw)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	return &entry{object: p, pod: eviction.NewPod(p), size: podjson.Size(p)}, nil
}

// room refuses what does not fit beside what is known and what others put. Members have no more than maxBoth for all that, so that root has
// the rest; and what is small fits whatever others do.
func (u *underway) room() error {
	held, roots := u.s.held.Load(), u.s.roots.Load()
	all := held + u.s.staged.Load() + u.s.texts.Load()
	most := int64(maxAll)
	if u.by == ByMember {
		most = maxBoth
	}
	own := int64(u.staged + u.texts)
	switch {
	case held+int64(u.staged) > maxBoth || held+own > most && own > freeObjects:
		return fmt.Errorf("%w: the agent has room for %d MiB of pods while they change, and has %d: put or delete them in parts",
			ErrTooLarge, maxBoth>>20, held>>20)
	case own <= freeObjects:
	case u.by == ByRoot && roots <= maxAll-maxBoth:
	case all > maxAll || u.by == ByMember && all-roots > maxBoth:
		return fmt.Errorf("%w: too many pods are being put at the same time", ErrBusy)
	}
	return nil
}

// Hold takes bytes of memory for a member's answer from the budget, until release is called; false: there is no room, and nothing is held.
func (s *Store) Hold(bytes int) (release func(), ok bool) {
	u := &underway{s: s, by: ByMember}
	u.take(0, bytes)
	if bytes > freeText && u.room() != nil {
		u.end()
		return nil, false
	}
	return u.end, true
}
