package podstore

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/eviction"
	"jettison/internal/base/podjson"
	"jettison/stats"
)

// Form is how a pod is written.
type Form int

// Forms. An unsaid one is JSON where the text begins as an object does, else YAML.
const (
	FormUnsaid Form = iota
	FormJSON
	FormYAML
)

// Asked is a pod that asks whether the node takes it. Nothing of it is kept.
type Asked struct {
	// Pod is the whole object, of which kubernetes.io/config.source is what the runtime or a manifest
	// says of the pod, and not the client.
	Pod *v1.Pod
	// Unknown are fields that the agent does not know.
	Unknown []string
	// Known: the runtime or a manifest has a pod of its UID.
	Known bool
}

// Ask reads one pod, and takes what it needs from the budget until done is called, which is never
// nil. Errors name the field, and wrap what Put's do.
func (s *Store) Ask(r io.Reader, form Form, by By) (asked *Asked, done func(), err error) {
	u := &underway{s: s, by: by}
	text, err := io.ReadAll(&counted{r: r, held: u.text})
	if err == nil {
		asked, err = u.ask(text, form)
	}
	if err != nil {
		u.end()
		return nil, func() {}, err
	}
	return asked, u.end, nil
}

// ask decodes one pod at a time, as decode does.
func (u *underway) ask(text []byte, form Form) (*Asked, error) {
	s := u.s
	defer u.turn()()
	if form == FormYAML || form == FormUnsaid && !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"),
		[]byte("{")) {
		var err error
		if text, err = podjson.YAML(text); err != nil {
			return nil, err
		}
	}
	p, unknown, err := podjson.Asking(text)
	if err != nil {
		return nil, err
	}
	if err = podjson.Complete(p, unknown); err != nil {
		return nil, err
	}
	u.take(podjson.Size(p), -u.texts) // the text is held by nothing any more
	if err = u.room(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Annotations,
		func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	asked := &Asked{Pod: p, Unknown: unknown}
	ref, source := s.named(p)
	if asked.Known = ref.UID != ""; !asked.Known {
		return asked, nil
	}
	if own := (&eviction.Pod{Ref: stats.PodReference{Namespace: p.Namespace,
		Name: p.Name}}); !own.Names(ref) {
		return nil, fmt.Errorf("metadata.uid: %s is that of %s/%s: give a pod its own UID", p.UID,
			ref.Namespace, ref.Name)
	}
	if source != "" {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[sourceAnnotation] = source
	}
	return asked, nil
}

// The kubelet's annotation for where it has a pod from (pkg/kubelet/types/pod_update.go), and that
// it is a file.
const (
	sourceAnnotation = kubeletsAnnotations + "source"
	sourceFile       = "file"
)

// named is the pod of p's UID, as the runtime has it, else a manifest, with where it is from. p has
// a UID.
func (s *Store) named(p *v1.Pod) (ref stats.PodReference, source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := string(p.UID)
	if of := s.runtime[uid]; of != nil {
		if s.static[uid] != nil {
			return of.PodRef, sourceFile
		}
		return of.PodRef, of.Annotations[sourceAnnotation]
	}
	for _, m := range s.manifests {
		if m.UID == types.UID(uid) {
			return stats.PodReference{UID: uid, Namespace: m.Namespace, Name: m.Name}, sourceFile
		}
	}
	return stats.PodReference{}, ""
}

// counted tells how many bytes were read from r.
type counted struct {
	r    io.Reader
	held func(bytes int) error
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += n
	return n, cmp.Or(c.held(c.read), err)
}
