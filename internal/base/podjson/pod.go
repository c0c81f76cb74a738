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

// Pod decodes one pod. Unknown and duplicate fields, another kind of object, and a missing or
// invalid uid, namespace or name are errors that name the field. The pod is trimmed, see Trim, and
// reduced to the limits.
func Pod(raw []byte) (*v1.Pod, error) {
	p, warnings, err := decode(raw, bounds{memory: maxDecoded, strict: true})
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		return nil, warnings[0]
	}
	if err := Named(p); err != nil {
		return nil, err
	}
	p = Trim(p)
	applyLimits(p)
	return p, nil
}

// Protobuf decodes one pod in the encoding of k8s.io/api. Unlike a client, the sender may mark a
// pod as static. Errors name the field. The pod is trimmed and reduced like by Pod.
func Protobuf(raw []byte) (*v1.Pod, error) {
	if n := decodedSize(raw); n > maxDecoded {
		return nil, fmt.Errorf("%w: about %dMi of memory when decoded", ErrTooLarge, n>>20)
	}
	p := &v1.Pod{}
	if err := p.Unmarshal(raw); err != nil {
		return nil, errors.New(clipLong(err.Error()))
	}
	if err := Named(p); err != nil {
		return nil, err
	}
	p = Trim(p)
	applyLimits(p)
	return p, nil
}

// Manifest decodes a static pod's manifest, which may lack uid and namespace. Like the kubelet it
// accepts unknown and duplicate fields, and returns them as warnings. The pod is not trimmed.
func Manifest(raw []byte) (p *v1.Pod, warnings []error, err error) {
	if p, warnings, err = decode(raw, bounds{memory: maxDecoded}); err != nil {
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
	return p, warnings, nil
}

// decode applies the guard first, and then the decoder.
func decode(raw []byte, allowed bounds) (p *v1.Pod, warnings []error, err error) {
	if len(raw) > MaxPod {
		return nil, nil, errPodTooLarge
	}
	if err := guard(raw, allowed); err != nil {
		return nil, nil, anotherKind(raw, err)
	}
	p = &v1.Pod{}
	if warnings, err = json.UnmarshalStrict(raw, p); err != nil {
		return nil, nil, anotherKind(raw, errors.New(clipLong(err.Error())))
	}
	for i, w := range warnings {
		warnings[i] = errors.New(clipLong(w.Error()))
	}
	if !isPod(p.APIVersion, p.Kind) {
		return nil, nil, errKind(p.APIVersion, p.Kind)
	}
	return p, warnings, nil
}

// anotherKind returns the error for a text with another kind, which explains its other fields;
// otherwise err.
func anotherKind(raw []byte, err error) error {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if errors.Is(err, ErrTooLarge) || json.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil ||
		isPod(object.APIVersion, object.Kind) {
		return err
	}
	return errKind(object.APIVersion, object.Kind)
}

// isPod reports whether the type is that of a pod. Missing fields count as matching.
func isPod(apiVersion, kind string) bool {
	return (kind == "" || kind == "Pod") && (apiVersion == "" || apiVersion == "v1")
}

func errKind(apiVersion, kind string) error {
	return fmt.Errorf("apiVersion %q, kind %q: want v1, Pod", clip(apiVersion), clip(kind))
}

// checkUID checks a UID, which becomes part of paths and log lines.
func checkUID(uid string) error {
	invalid := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }
	switch {
	case uid == "":
		return errors.New("metadata.uid: missing")
	case len(uid) > maxUID:
		return fmt.Errorf("metadata.uid: %.40q...: longer than %d characters", uid, maxUID)
	case strings.ContainsFunc(uid, invalid) || uid == "." || uid == "..":
		return fmt.Errorf("metadata.uid: %q: want letters, digits and -", uid)
	}
	return nil
}

// checkNames rejects names that an API server or a kubelet rejects.
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

// clipLong shortens a decoder's message, which may quote its input, and puts it on one line.
func clipLong(s string) string {
	const limit = 400
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
