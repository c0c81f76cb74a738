package planner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	seen   map[string]bool
	unused map[string]int // number of ignored objects, by kind
}

// rawObject is any object or list.
type rawObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// metrics is a NodeMetrics or PodMetrics of metrics.k8s.io.
type metrics struct {
	Usage      v1.ResourceList `json:"usage"`
	Containers []struct {
		Usage v1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// read adds the objects in a file: JSON documents, YAML documents, or lists of objects.
func (o *objects) read(text []byte, name string) error {
	trimmed := bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if bytes.HasPrefix(trimmed, []byte("\xff\xfe")) || bytes.HasPrefix(trimmed, []byte("\xfe\xff")) {
		return fmt.Errorf("objects %s: file is UTF-16, the default of PowerShell redirection: want UTF-8", name)
	}
	if len(trimmed) == 0 {
		return fmt.Errorf("objects %s: file is empty: want the output of \"kubectl get nodes,pods,... -A -o json\"", name)
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
		return errors.New("lists are nested too deeply: want a List of objects")
	}
	if document = bytes.TrimSpace(document); len(document) > 0 && document[0] == '[' {
		var items []json.RawMessage
		if err := json.Unmarshal(document, &items); err != nil {
			return err
		}
		return o.addAll(items, itemType, depth)
	}
	var r rawObject
	if err := json.Unmarshal(document, &r); err != nil {
		return fmt.Errorf("not a Kubernetes object: %w", err)
	}
	if r.Kind == "" {
		r.TypeMeta = itemType
	}
	if kind, ok := strings.CutSuffix(r.Kind, "List"); ok {
		return o.addAll(r.Items, metav1.TypeMeta{Kind: kind, APIVersion: r.APIVersion}, depth)
	}
	if r.Kind == "" {
		return errors.New("kind is missing: want a v1 List or Kubernetes objects")
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

// decode decodes an object, sets its namespace, and appends it to the list of its kind.
func decode[T any, O interface {
	*T
	metav1.Object
}](to *[]O, document json.RawMessage, namespace string) error {
	v := O(new(T))
	if err := json.Unmarshal(document, v); err != nil {
		return err
	}
	v.SetNamespace(namespace)
	*to = append(*to, v)
	return nil
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
	if r.Metadata.Name == "" {
		return errors.New("metadata.name is missing")
	}
	group, _, named := strings.Cut(r.APIVersion, "/")
	kind, ok := usedKinds[r.Kind]
	if !ok || named && group != kind.group || r.APIVersion == "v1" && kind.group != "" {
		o.unused[r.Kind]++
		return nil
	}
	if kind.namespaced && r.Metadata.Namespace == "" {
		r.Metadata.Namespace = v1.NamespaceDefault // as for kubectl
	}
	key := r.Kind + " " + r.Metadata.Namespace + "/" + r.Metadata.Name
	if o.seen[key] {
		return errors.New("duplicate object")
	}
	o.seen[key] = true
	space := r.Metadata.Namespace
	switch r.Kind {
	case "Node":
		return decode(&o.Nodes, document, space)
	case "Pod":
		return decode(&o.Pods, document, space)
	case "Namespace":
		return decode(&o.Namespaces, document, space)
	case "PersistentVolumeClaim":
		return decode(&o.Claims, document, space)
	case "PersistentVolume":
		return decode(&o.Volumes, document, space)
	case "PriorityClass":
		return decode[schedulingv1.PriorityClass](&o.PriorityClasses, document, space)
	case "PodDisruptionBudget":
		return decode[policyv1.PodDisruptionBudget](&o.Budgets, document, space)
	case "NodeMetrics", "PodMetrics":
		return o.addMetrics(r, document)
	}
	if space == leaseNamespace && r.Metadata.Annotations[api.LoadAnnotation] != "" {
		return o.addLoad(r)
	}
	o.unused[r.Kind]++
	return nil
}

func (o *objects) addLoad(r *rawObject) error {
	load, err := ParseAgentLoad(r.Metadata.Annotations[api.LoadAnnotation])
	if err != nil {
		return err
	}
	if o.Agents == nil {
		o.Agents = map[string]deschedule.AgentLoad{}
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
	if r.Kind == "NodeMetrics" {
		o.NodeUsage[r.Metadata.Name] = m.Usage
		return nil
	}
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
	o.PodUsage[r.Metadata.Namespace+"/"+r.Metadata.Name] = sum
	return nil
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
		return errors.New("objects: no Node found: want the output of \"kubectl get " +
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
