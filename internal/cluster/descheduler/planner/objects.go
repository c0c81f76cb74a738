package planner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"jettison/api"
	"jettison/cluster/deschedule"
)

// systemClasses are the built-in priority classes.
var systemClasses = map[string]int32{"system-cluster-critical": 2000000000,
	"system-node-critical": 2000001000}

// objects collects the objects of a snapshot.
type objects struct {
	deschedule.Snapshot
	seen   map[string]copyOf // by kind, namespace and name
	unused map[string]int    // number of ignored objects, by kind
	// number of objects of which the input has different versions, and a description of the first
	differing      int
	firstDiffering string
}

// copyOf is the copy of an object that a plan uses.
type copyOf struct {
	index   int    // in the list of its kind
	version string // metadata.resourceVersion
}

func newObjects() *objects {
	return &objects{seen: map[string]copyOf{}, unused: map[string]int{}}
}

// rawObject is any object or list.
type rawObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name            string          `json:"name"`
		Namespace       string          `json:"namespace"`
		ResourceVersion json.RawMessage `json:"resourceVersion"`
		Annotations     json.RawMessage `json:"annotations"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// version returns the resourceVersion; empty: unknown.
func (r *rawObject) version() string {
	return strings.Trim(string(r.Metadata.ResourceVersion), `"`)
}

// noObjectsError is the error about a text without Kubernetes objects.
type noObjectsError struct{ error }

func noObjects(text string) error { return noObjectsError{errors.New(text)} }

// metrics is a NodeMetrics or PodMetrics of metrics.k8s.io.
type metrics struct {
	Usage      v1.ResourceList `json:"usage"`
	Containers []struct {
		Usage v1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// read adds the objects in a file: JSON documents, YAML documents, or lists of objects.
func (o *objects) read(text []byte, name string) error {
	trimmed := bytes.TrimSpace(withoutLogs(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	if bytes.HasPrefix(trimmed, []byte("\xff\xfe")) || bytes.HasPrefix(trimmed, []byte("\xfe\xff")) {
		return fmt.Errorf("objects %s: file is UTF-16, the default of PowerShell redirection: want UTF-8", name)
	}
	if len(trimmed) == 0 {
		return fmt.Errorf("objects %s: %w", name,
			noObjects("file is empty: want the output of \"kubectl get nodes,pods,... -A -o json\""))
	}
	next := o.yamlDocuments(trimmed)
	if trimmed[0] == '{' || trimmed[0] == '[' {
		d := json.NewDecoder(bytes.NewReader(trimmed))
		next = func() (document json.RawMessage, err error) {
			err = d.Decode(&document)
			return document, err
		}
	}
	for number := 1; ; number++ {
		document, err := next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = o.add(document, metav1.TypeMeta{}, 0)
		}
		if err != nil {
			return fmt.Errorf("objects %s: document %d: %w", name, number, err)
		}
	}
}

func (o *objects) yamlDocuments(text []byte) func() (json.RawMessage, error) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	return func() (json.RawMessage, error) {
		for {
			document, err := r.Read()
			if err != nil {
				return nil, err
			}
			if out, err := yaml.YAMLToJSON(document); err != nil || string(out) != "null" {
				return out, err
			}
		}
	}
}

// maxListDepth is the maximum nesting of lists.
const maxListDepth = 4

// add adds an object or a list. itemType is the type of the items of a typed list; an item may omit
// its type.
func (o *objects) add(document json.RawMessage, itemType metav1.TypeMeta, depth int) error {
	if depth > maxListDepth {
		return noObjects("lists are nested too deeply: want a List of objects")
	}
	if document = bytes.TrimSpace(document); len(document) > 0 && document[0] == '[' {
		var items []json.RawMessage
		if err := json.Unmarshal(document, &items); err != nil {
			return err
		}
		return o.addAll(items, itemType, depth)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")) {
		return noObjectsError{errors.New("not a Kubernetes object: want a mapping with kind and metadata")}
	}
	var r rawObject
	if err := json.Unmarshal(document, &r); err != nil {
		return noObjectsError{fmt.Errorf("not a Kubernetes object: %w", err)}
	}
	if r.Kind == "" {
		r.TypeMeta = itemType
	}
	if kind, ok := strings.CutSuffix(r.Kind, "List"); ok {
		return o.addAll(r.Items, metav1.TypeMeta{Kind: kind, APIVersion: r.APIVersion}, depth)
	}
	if r.Kind == "" {
		return noObjects("kind is missing: want a v1 List or Kubernetes objects")
	}
	if err := o.addObject(&r, document); err != nil {
		return fmt.Errorf("%s %s: %w", r.Kind, strings.TrimPrefix(r.Metadata.Namespace+"/"+
			r.Metadata.Name, "/"), err)
	}
	return nil
}

func (o *objects) addAll(items []json.RawMessage, itemType metav1.TypeMeta, depth int) error {
	for i, item := range items {
		if err := o.add(item, itemType, depth+1); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

// decode decodes an object, sets its namespace, and puts it into the list of its kind.
func decode[T any, O interface {
	*T
	metav1.Object
	runtime.Object
}](o *objects, to *[]O, r *rawObject, document json.RawMessage) error {
	v := O(new(T))
	if json.Unmarshal(document, v) != nil {
		used, err := usedPart(r.Kind, document)
		if v = O(new(T)); err == nil {
			err = json.Unmarshal(used, v)
		}
		if err != nil {
			return err
		}
	}
	v.SetNamespace(r.Metadata.Namespace)
	v.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // items of a list have none
	at, err := o.place(r, len(*to), func(at int) bool {
		return equality.Semantic.DeepEqual((*to)[at], v)
	})
	switch {
	case err != nil || at < 0:
		return err
	case at < len(*to):
		(*to)[at] = v
	default:
		*to = append(*to, v)
	}
	return nil
}

// place returns the index of an object in the list of its kind: next, or that of an older copy,
// which it replaces; -1: the list has the same or a newer copy. same compares with a copy.
func (o *objects) place(r *rawObject, next int, same func(at int) bool) (int, error) {
	key, version := r.Kind+" "+r.Metadata.Namespace+"/"+r.Metadata.Name, r.version()
	before, twice := o.seen[key]
	if !twice {
		o.seen[key] = copyOf{next, version}
		return next, nil
	}
	if same(before.index) {
		return -1, nil
	}
	old, err := strconv.ParseUint(before.version, 10, 64)
	made, err2 := strconv.ParseUint(version, 10, 64)
	if errors.Join(err, err2) != nil {
		return 0, errors.New("duplicate object: the copies differ, and resourceVersion does not tell " +
			"the newer one")
	}
	if o.differing++; o.differing == 1 {
		o.firstDiffering = fmt.Sprintf("%s (%s and %s)", key, before.version, version)
	}
	if made <= old {
		return -1, nil
	}
	o.seen[key] = copyOf{before.index, version}
	return before.index, nil
}

// usedKinds are the kinds that plans use, with their API groups and scopes. Other API groups have
// kinds with the same names, such as Node of longhorn.io.
var usedKinds = map[string]struct {
	group      string
	namespaced bool
}{
	"Node": {"", false}, "Pod": {"", true}, "Namespace": {"", false},
	"PersistentVolumeClaim": {"", true}, "PersistentVolume": {"", false},
	"PriorityClass": {"scheduling.k8s.io", false}, "PodDisruptionBudget": {"policy", true},
	"Lease":       {"coordination.k8s.io", true},
	"NodeMetrics": {"metrics.k8s.io", false}, "PodMetrics": {"metrics.k8s.io", true},
}

func (o *objects) addObject(r *rawObject, document json.RawMessage) error {
	group, _, named := strings.Cut(r.APIVersion, "/")
	kind, ok := usedKinds[r.Kind]
	if !ok || named && group != kind.group || r.APIVersion == "v1" && kind.group != "" {
		o.unused[r.Kind]++
		return nil
	}
	if r.Metadata.Name == "" {
		return errors.New("metadata.name is missing")
	}
	if kind.namespaced && r.Metadata.Namespace == "" {
		r.Metadata.Namespace = v1.NamespaceDefault // as for kubectl
	}
	switch r.Kind {
	case "Node":
		return decode(o, &o.Nodes, r, document)
	case "Pod":
		return decode(o, &o.Pods, r, document)
	case "Namespace":
		return decode(o, &o.Namespaces, r, document)
	case "PersistentVolumeClaim":
		return decode(o, &o.Claims, r, document)
	case "PersistentVolume":
		return decode(o, &o.Volumes, r, document)
	case "PriorityClass":
		return decode[schedulingv1.PriorityClass](o, &o.PriorityClasses, r, document)
	case "PodDisruptionBudget":
		return decode[policyv1.PodDisruptionBudget](o, &o.Budgets, r, document)
	case "NodeMetrics", "PodMetrics":
		return o.addMetrics(r, document)
	}
	if r.Metadata.Namespace == leaseNamespace {
		var annotations map[string]string
		if err := json.Unmarshal(r.Metadata.Annotations, &annotations); err == nil &&
			annotations[api.LoadAnnotation] != "" {
			return o.addLoad(r, annotations[api.LoadAnnotation])
		}
	}
	o.unused[r.Kind]++
	return nil
}

func (o *objects) addLoad(r *rawObject, annotation string) error {
	load, err := ParseAgentLoad(annotation)
	if err != nil {
		return err
	}
	if o.Agents == nil {
		o.Agents = map[string]deschedule.AgentLoad{}
	}
	at, err := o.place(r, 0, func(int) bool {
		return reflect.DeepEqual(o.Agents[r.Metadata.Name], load)
	})
	if err != nil || at < 0 {
		return err
	}
	o.Agents[r.Metadata.Name] = load
	return nil
}

func (o *objects) addMetrics(r *rawObject, document json.RawMessage) error {
	var m metrics
	if err := json.Unmarshal(document, &m); err != nil {
		return err
	}
	if o.NodeUsage == nil {
		o.NodeUsage, o.PodUsage = map[string]v1.ResourceList{}, map[string]v1.ResourceList{}
	}
	key, usage := r.Metadata.Name, o.NodeUsage
	if r.Kind == "PodMetrics" {
		key, usage = r.Metadata.Namespace+"/"+r.Metadata.Name, o.PodUsage
		m.Usage = m.sum()
	}
	at, err := o.place(r, 0, func(int) bool {
		return equality.Semantic.DeepEqual(usage[key], m.Usage)
	})
	if err != nil || at < 0 {
		return err
	}
	usage[key] = m.Usage
	return nil
}

// sum returns the usage of all containers.
func (m *metrics) sum() v1.ResourceList {
	sum := v1.ResourceList{}
	for _, c := range m.Containers {
		for name, q := range c.Usage {
			total := resource.Quantity{}
			if was, ok := sum[name]; ok {
				total = was.DeepCopy()
			}
			total.Add(q)
			sum[name] = total
		}
	}
	return sum
}

// complete sets defaults as the API server does: the priority from the PriorityClass. It also
// derives past evictions from the pods.
func (o *objects) complete() error {
	classes := map[string]int32{}
	for name, value := range systemClasses {
		classes[name] = value
	}
	for _, class := range o.PriorityClasses {
		classes[class.Name] = class.Value
	}
	for _, p := range o.Pods {
		if value, ok := classes[p.Spec.PriorityClassName]; ok && p.Spec.Priority == nil {
			p.Spec.Priority = &value
		}
	}
	o.Evicted = PastEvictions(o.Pods)
	if len(o.Nodes) == 0 {
		return errors.New("no Node found: want the output of \"kubectl get " +
			"nodes,pods,namespaces,pdb,pc,pv,pvc -A -o json\"")
	}
	return nil
}

// PastEvictions returns the evictions of pods that are still being deleted: the API server
// records them in the status.
func PastEvictions(pods []*v1.Pod) (out []deschedule.PastEviction) {
	for _, p := range pods {
		for i := range p.Status.Conditions {
			c := &p.Status.Conditions[i]
			if c.Type != v1.DisruptionTarget || c.Reason != "EvictionByEvictionAPI" {
				continue
			}
			for _, owner := range p.OwnerReferences {
				out = append(out, deschedule.PastEviction{Namespace: p.Namespace, Owner: owner.UID,
					At: c.LastTransitionTime.Time})
			}
		}
	}
	return out
}

// podsOnUnknownNodes returns the number of pods on nodes that are not among the objects, and the
// first of them.
func (o *objects) podsOnUnknownNodes() (count int, first *v1.Pod) {
	known := map[string]bool{"": true}
	for _, n := range o.Nodes {
		known[n.Name] = true
	}
	for _, p := range o.Pods {
		if !known[p.Spec.NodeName] {
			if count++; count == 1 {
				first = p
			}
		}
	}
	return count, first
}

// unusedKinds lists the kinds of ignored objects with their numbers; empty: none.
func (o *objects) unusedKinds() string {
	var out []string
	for kind, count := range o.unused {
		out = append(out, fmt.Sprintf("%d %s", count, kind))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
