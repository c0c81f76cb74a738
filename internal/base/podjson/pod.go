package podjson

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"
)

// maxUID bounds a pod's UID in characters; a UUID has 36.
const maxUID = 128

// Pod decodes one pod. Unknown and duplicate fields, another kind of object, a missing or odd uid,
// namespace or name are errors that name the field. What comes back is trimmed, see Trim, and
// without what it has too much of.
func Pod(raw []byte) (*v1.Pod, error) {
	p, doubts, err := decode(raw, bounds{memory: maxDecoded, strict: true})
	if err != nil {
		return nil, err
	}
	if len(doubts) > 0 {
		return nil, doubts[0]
	}
	if err := Named(p); err != nil {
		return nil, err
	}
	p = Trim(p)
	lighten(p)
	return p, nil
}

// Protobuf decodes one pod as k8s.io/api marshals it, of who may say what a client may not: that a
// pod is static. Errors name the field. What comes back is as of Pod.
func Protobuf(raw []byte) (*v1.Pod, error) {
	if n := decoded(raw); n > maxDecoded {
		return nil, fmt.Errorf("%w: decoded it takes about %d MiB of memory", ErrTooLarge, n>>20)
	}
	p := &v1.Pod{}
	if err := p.Unmarshal(raw); err != nil {
		return nil, errors.New(clipLong(err.Error()))
	}
	if err := Named(p); err != nil {
		return nil, err
	}
	p = Trim(p)
	lighten(p)
	return p, nil
}

// Manifest decodes a static pod's manifest, which may lack uid and namespace. As the kubelet does,
// it takes it in spite of unknown and duplicate fields, which are returned as doubts. What comes
// back is not trimmed.
func Manifest(raw []byte) (p *v1.Pod, doubts []error, err error) {
	if p, doubts, err = decode(raw, bounds{memory: maxDecoded}); err != nil {
		return nil, nil, err
	}
	if err := Typed(p); err != nil {
		return nil, nil, err
	}
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	if p.UID != "" {
		if err := checkUID(string(p.UID)); err != nil {
			return nil, nil, err
		}
	}
	if err := checkNames(p); err != nil {
		return nil, nil, err
	}
	return p, doubts, nil
}

// decode is the order that counts: first the guard, then the decoder.
func decode(raw []byte, may bounds) (p *v1.Pod, doubts []error, err error) {
	if len(raw) > MaxPod {
		return nil, nil, errPodTooLarge
	}
	if err := guard(raw, may); err != nil {
		return nil, nil, anotherKind(raw, err)
	}
	p = &v1.Pod{}
	if doubts, err = json.UnmarshalStrict(raw, p); err != nil {
		return nil, nil, anotherKind(raw, errors.New(clipLong(err.Error())))
	}
	for i, d := range doubts {
		doubts[i] = errors.New(clipLong(d.Error()))
	}
	if !isPod(p.APIVersion, p.Kind) {
		return nil, nil, errKind(p.APIVersion, p.Kind)
	}
	return p, doubts, nil
}

// anotherKind says of a text that is no pod what it is, if it says so itself: that is why it has
// fields of other types. Else err stands.
func anotherKind(raw []byte, err error) error {
	var of struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if errors.Is(err, ErrTooLarge) || json.UnmarshalCaseSensitivePreserveInts(raw, &of) != nil ||
		isPod(of.APIVersion, of.Kind) {
		return err
	}
	return errKind(of.APIVersion, of.Kind)
}

// isPod is true of a text that does not say what it is, too.
func isPod(apiVersion, kind string) bool {
	return (kind == "" || kind == "Pod") && (apiVersion == "" || apiVersion == "v1")
}

func errKind(apiVersion, kind string) error {
	return fmt.Errorf("apiVersion %q, kind %q: want v1, Pod", clip(apiVersion), clip(kind))
}

// checkUID: a UID becomes a part of paths and of log lines.
func checkUID(uid string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }
	switch {
	case uid == "":
		return errors.New("metadata.uid: missing")
	case len(uid) > maxUID:
		return fmt.Errorf("metadata.uid: %.40q...: longer than %d characters", uid, maxUID)
	case strings.ContainsFunc(uid, odd) || uid == "." || uid == "..":
		return fmt.Errorf("metadata.uid: %q: want letters, digits, - and the like", uid)
	}
	return nil
}

// checkNames refuses names that an API server or a kubelet would refuse.
func checkNames(p *v1.Pod) error {
	for _, f := range []struct {
		field, value string
		check        func(string) []string
	}{
		{"metadata.namespace", p.Namespace, validation.IsDNS1123Label},
		{"metadata.name", p.Name, validation.IsDNS1123Subdomain},
	} {
		if f.value == "" {
			return fmt.Errorf("%s: missing", f.field)
		}
		if wrong := f.check(f.value); len(wrong) > 0 {
			return fmt.Errorf("%s: %q: %s", f.field, clip(f.value), wrong[0])
		}
	}
	return nil
}

// clipLong keeps a decoder's message, which may quote what it was given, to one line of bearable
// length.
func clipLong(s string) string {
	const most = 400
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
