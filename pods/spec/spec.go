// Package spec turns the text of a manifest into objects: pods, ConfigMaps and Secrets, defaulted
// and validated as by an API server. It is strict: an unknown or unsupported field is an error with
// its line. It does no I/O.
//
//	spec.go       Parse: the objects of a text, or its errors
//	document.go   the documents of a text: encoding, bounds, JSON and YAML
//	decode.go     decodes a document into a Kubernetes type, with the line of each field
//	scalar.go     decodes text, numbers and truth values
//	fields.go     the fields that are supported, ignored and refused
//	defaults.go   defaults of pods
//	resources.go  defaults and validation of requests and limits
//	image.go      the default pull policy
//	validate.go   validation of metadata and pods
//	container.go  validation of containers
//	place.go      validation of tolerations and node affinity
//	data.go       defaults and validation of ConfigMaps and Secrets
//	identity.go   UID, Hash, Bind: which pod it is, and whether it changed
//
// The rules are those of Kubernetes 1.37 (pkg/apis/core/v1/defaults.go,
// pkg/apis/core/validation/validation.go), and e2e/oracle/podspec compares them.
package spec

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"jettison/internal/base/nearest"
	"jettison/internal/base/strict"
)

// Key identifies an object of a node.
type Key struct {
	Kind            string // Pod, ConfigMap or Secret
	Namespace, Name string
}

// String returns "Pod default/web".
func (k Key) String() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// Object is an object of a manifest, defaulted and valid. It is never modified. One of Pod,
// ConfigMap and Secret is set.
type Object struct {
	Key
	Line int    // of the manifest, from 1
	Hash string // see Hash

	Pod       *v1.Pod // not yet bound, see Bind
	ConfigMap *v1.ConfigMap
	Secret    *v1.Secret
}

// maxErrors bounds the errors that Parse returns for a text.
const maxErrors = 20

// Parse returns the objects of a manifest in their order, or all errors, sorted by line. The node's
// name becomes part of the pods' names; empty: it is not known. A text without objects is an error,
// because a file that is being written is empty at first.
func Parse(text []byte, node string) ([]*Object, []*strict.FieldError) {
	p := &parser{node: node, seen: map[Key]int{}}
	if err := documents(text, p.document); err != nil {
		p.errs = append(p.errs, err)
	}
	if len(p.errs) == 0 && len(p.objects) == 0 {
		p.fail(1, "", errors.New("no object: want a Pod, ConfigMap or Secret; to remove pods, remove "+
			"the file"))
	}
	if len(p.errs) == 0 {
		return p.objects, nil
	}
	slices.SortFunc(p.errs, func(a, b *strict.FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Err.Error(), b.Err.Error()))
	})
	if len(p.errs) > maxErrors {
		p.errs = p.errs[:maxErrors]
		p.fail(p.errs[maxErrors-1].Line, "", errors.New("there are more errors"))
	}
	return nil, p.errs
}

// maxObjects bounds the objects of a text, and its documents.
const maxObjects = 1000

var errTooMany = fmt.Errorf("more than %d objects: use several files", maxObjects)

// parser collects the objects and errors of a text.
type parser struct {
	node    string
	objects []*Object
	errs    []*strict.FieldError
	seen    map[Key]int // lines of the objects
	count   int         // objects, valid or not
	memory  int         // bytes of all decoded values
}

func (p *parser) fail(line int, path string, err error) {
	p.errs = append(p.errs, &strict.FieldError{Line: line, Field: path, Err: err})
}

const (
	kindPod       = "Pod"
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
)

// lists maps kinds of lists to the kind of their items; empty: each item names its kind.
var lists = map[string]string{"List": "", "PodList": kindPod, "ConfigMapList": kindConfigMap,
	"SecretList": kindSecret}

// document parses a document with content. It reports whether further ones are of interest.
func (p *parser) document(n *yaml.Node) bool {
	kind := p.kind(n, "", "")
	if item, isList := lists[kind]; isList {
		p.list(n, item)
	} else {
		p.object(n, kind, "")
	}
	return len(p.errs) <= maxErrors
}

// list parses a list, with the kind of its items; empty: each item names its kind.
func (p *parser) list(n *yaml.Node, item string) {
	items := resolve(child(n, "items"))
	if items == nil || items.Kind != yaml.SequenceNode {
		p.fail(n.Line, "items", errors.New("want a list"))
		return
	}
	for i, n := range items.Content {
		path := fmt.Sprintf("items[%d]", i)
		n = resolve(n)
		p.object(n, p.kind(n, item, path), path)
	}
	known := []string{"apiVersion", "kind", "metadata", "items"}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; !slices.Contains(known, name) {
			p.fail(n.Content[i].Line, "", fmt.Errorf("unknown field %q%s", clip(name),
				nearest.Question(name, slices.Values(known))))
		}
	}
}

// kind returns the kind of an object, or an empty text after an error. fallback is the kind of an
// object without one.
func (p *parser) kind(n *yaml.Node, fallback, path string) string {
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, path, fmt.Errorf("want an object such as \"kind: Pod\", got %s", describe(n)))
		return ""
	}
	line := func(field string) int {
		if at := child(n, field); at != nil {
			return at.Line
		}
		return n.Line
	}
	version, kind := text(child(n, "apiVersion")), text(child(n, "kind"))
	if fallback != "" {
		version, kind = cmp.Or(version, "v1"), cmp.Or(kind, fallback)
	}
	_, isList := lists[kind]
	kinds := []string{kindPod, kindConfigMap, kindSecret, "PodList"}
	switch {
	case kind == "":
		p.fail(line("kind"), join(path, "kind"), errors.New("missing: want Pod, ConfigMap or Secret"))
	case !slices.Contains(kinds, kind) && (!isList || path != ""):
		p.fail(line("kind"), join(path, "kind"), fmt.Errorf("%q not supported: want Pod, ConfigMap or "+
			"Secret%s", clip(kind), nearest.Question(kind, slices.Values(kinds))))
	case fallback != "" && kind != fallback:
		p.fail(line("kind"), join(path, "kind"), fmt.Errorf("%q in a list of kind %s", clip(kind),
			fallback))
	case version != "v1":
		p.fail(line("apiVersion"), join(path, "apiVersion"), fmt.Errorf("%q: want \"v1\"", clip(version)))
	default:
		return kind
	}
	return ""
}

// object decodes, defaults and validates one object.
func (p *parser) object(n *yaml.Node, kind, path string) {
	if kind == "" {
		return
	}
	if p.count++; p.count > maxObjects {
		if p.count == maxObjects+1 {
			p.fail(n.Line, path, errTooMany)
		}
		return
	}
	d := &decoder{lines: map[string]int{"": n.Line}, prefix: path, memory: &p.memory}
	o := &Object{Key: Key{Kind: kind}, Line: n.Line}
	var meta *metav1.ObjectMeta
	var into any
	switch kind {
	case kindPod:
		d.noNUL = true
		o.Pod = &v1.Pod{}
		meta, into = &o.Pod.ObjectMeta, o.Pod
	case kindConfigMap:
		o.ConfigMap = &v1.ConfigMap{}
		meta, into = &o.ConfigMap.ObjectMeta, o.ConfigMap
	default:
		o.Secret = &v1.Secret{}
		meta, into = &o.Secret.ObjectMeta, o.Secret
	}
	d.value(n, reflect.ValueOf(into).Elem(), "")
	if len(d.errs) > 0 {
		p.errs = append(p.errs, d.errs...)
		return
	}
	meta.Namespace = cmp.Or(meta.Namespace, v1.NamespaceDefault)
	var wrong field.ErrorList
	switch kind {
	case kindPod:
		Default(o.Pod)
		wrong = validatePod(o.Pod, p.node)
	case kindConfigMap:
		wrong = validateConfigMap(o.ConfigMap)
	default:
		defaultSecret(o.Secret)
		wrong = validateSecret(o.Secret)
	}
	for _, e := range wrong {
		if value, ok := e.BadValue.(string); ok {
			e.BadValue = clip(value)
		}
		p.fail(d.line(e.Field), join(path, e.Field), errors.New(clipLong(e.ErrorBody())))
	}
	if len(wrong) > 0 {
		return
	}
	o.Namespace, o.Name = meta.Namespace, meta.Name
	if before, twice := p.seen[o.Key]; twice {
		p.fail(n.Line, path, fmt.Errorf("%s is in the file twice, first on line %d", o.Key, before))
		return
	}
	p.seen[o.Key] = n.Line
	o.Hash = hash(o)
	p.objects = append(p.objects, o)
}
