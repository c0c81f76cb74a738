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

// Form is the format of a pod's text.
type Form int

// The forms. FormUnknown is JSON if the text begins like an object, otherwise YAML.
const (
	FormUnknown Form = iota
	FormJSON
	FormYAML
)

// Asked is the pod of an admission request. It is not kept.
type Asked struct {
	// Pod is the whole object. Its annotation kubernetes.io/config.source is that of the runtime or
	// the manifest, not the client's.
	Pod *v1.Pod
	// Unknown are the fields that the agent does not know.
	Unknown []string
	// Known: the runtime or a manifest has a pod with its UID.
	Known bool
}

// Ask reads one pod and charges its memory until done is called; done is never nil. Errors name the
// field and wrap the same errors as Put.
func (s *Store) Ask(r io.Reader, form Form, by Role) (asked *Asked, done func(), err error) {
	q := &request{s: s, by: by}
	text, err := io.ReadAll(&counted{r: r, charge: q.chargeText})
	if err == nil {
		asked, err = q.decodeAsked(text, form)
	}
	if err != nil {
		q.release()
		return nil, func() {}, err
	}
	return asked, q.release, nil
}

// decodeAsked decodes a pod, one at a time like decode.
func (q *request) decodeAsked(text []byte, form Form) (*Asked, error) {
	s := q.s
	defer q.lockDecoder()()
	if form == FormYAML || form == FormUnknown && !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"),
		[]byte("{")) {
		var err error
		if text, err = podjson.YAML(text); err != nil {
			return nil, err
		}
	}
	p, unknown, err := podjson.DecodeForAdmission(text)
	if err != nil {
		return nil, err
	}
	if err = podjson.Complete(p, unknown); err != nil {
		return nil, err
	}
	podjson.DropAllocation(p) // the pod is not admitted yet

	q.charge(podjson.Size(p), -q.texts) // the text is no longer referenced
	if err = q.checkBudget(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Annotations,
		func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	asked := &Asked{Pod: p, Unknown: unknown}
	ref, source := s.find(p)
	if asked.Known = ref.UID != ""; !asked.Known {
		return asked, nil
	}
	if own := (&eviction.Pod{Ref: stats.PodReference{Namespace: p.Namespace,
		Name: p.Name}}); !own.Names(ref) {
		return nil, fmt.Errorf("metadata.uid: %s belongs to %s/%s: use the pod's own UID", p.UID,
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

// sourceAnnotation is the kubelet's annotation for the source of a pod
// (pkg/kubelet/types/pod_update.go), and sourceFile its value for a manifest.
const (
	sourceAnnotation = kubeletsAnnotations + "source"
	sourceFile       = "file"
)

// find returns the pod with p's UID, from the runtime or else a manifest, and its source. p has a
// UID.
func (s *Store) find(p *v1.Pod) (ref stats.PodReference, source string) {
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

// counted calls charge with the number of bytes read so far.
type counted struct {
	r      io.Reader
	charge func(bytes int) error
	read   int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += n
	return n, cmp.Or(c.charge(c.read), err)
}
