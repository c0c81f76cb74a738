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
	staged int // bytes of objects that are not known already
	texts  int // bytes of memory
}

func (u *underway) end() {
	u.s.staged.Add(int64(-u.staged))
	u.s.texts.Add(int64(-u.texts))
}

// text takes so many bytes of text into account, which is more than before. A decoder's buffer does not shrink.
func (u *underway) text(bytes int) error {
	more := textCosts*(bytes-freeText) - u.texts
	if more <= 0 {
		return nil
	}
	u.texts += more
	u.s.texts.Add(int64(more))
	return u.room()
}

// decode makes an entry of a pod's text, one pod at a time: what a pod takes before it is taken into account is there once.
func (u *underway) decode(raw []byte) (*entry, error) {
	s := u.s
	s.decoding.Lock()
	defer s.decoding.Unlock()
	p, err := podjson.Pod(raw)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	e := &entry{object: p, pod: eviction.NewPod(p), size: podjson.Size(p), root: u.by == ByRoot}
	if old := s.same(e); old != nil { // it takes no memory a second time
		return old, nil
	}
	u.staged += e.size
	s.staged.Add(int64(e.size))
	return e, u.room()
}

// room refuses what does not fit beside what is known and what others put.
func (u *underway) room() error {
	held, staged, texts := u.s.held.Load(), u.s.staged.Load(), u.s.texts.Load()
	switch own := held + int64(u.staged); {
	case own > maxBoth || own+int64(u.texts) > maxAll:
		return fmt.Errorf("%w: the agent has room for %d MiB of pods while they change, and has %d: put or delete them in parts",
			ErrTooLarge, maxBoth>>20, held>>20)
	case held+staged > maxBoth || held+staged+texts > maxAll:
		return fmt.Errorf("%w: too many pods are being put at the same time", ErrBusy)
	}
	return nil
}

// Hold takes bytes of memory for a client's answer from the budget, until release is called; false: there is no room, and nothing is held.
func (s *Store) Hold(bytes int) (release func(), ok bool) {
	s.texts.Add(int64(bytes))
	if bytes > freeText && s.held.Load()+s.staged.Load()+s.texts.Load() > maxAll {
		s.texts.Add(int64(-bytes))
		return nil, false
	}
	return func() { s.texts.Add(int64(-bytes)) }, true
}
