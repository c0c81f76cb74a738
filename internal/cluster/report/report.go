// Package report contains the status and explanations that jettison-cluster nodes serves, and the
// commands that print them.
//
//	command.go StatusCommand, ExplainCommand: jettison-cluster status and explain
//	report.go  Status, Explanation: the responses
//	fetch.go   requests to a running instance
//	print.go   tables of responses
package report

import "time"

// URL paths of the responses.
const (
	StatusPath  = "/v1/nodes"
	ExplainPath = "/v1/explain" // ?object=NODE, POD or NAMESPACE/POD
)

// Error is the response to a failed request.
type Error struct {
	Error  string `json:"error"`
	Leader string `json:"leader,omitempty"` // the instance to ask
}

// Status describes the state of all nodes.
type Status struct {
	Time   time.Time       `json:"time"`
	Leader string          `json:"leader"` // the responding instance
	Mode   string          `json:"mode"`
	Held   string          `json:"held,omitempty"`  // why this instance does not act
	Doubt  string          `json:"doubt,omitempty"` // why tainting is suspended
	Read   time.Time       `json:"read"`            // when nodes and Leases were last read
	Zones  map[string]Zone `json:"zones"`
	Nodes  []Node          `json:"nodes"` // by name
	Queues map[string]int  `json:"queues"`
	Next   *time.Time      `json:"next"` // the nearest deadline; null: none
}

// Zone describes the state of a zone.
type Zone struct {
	State    string  `json:"state"`
	Ready    int     `json:"ready"`
	NotReady int     `json:"notReady"`
	Waiting  int     `json:"waiting"` // nodes that wait for a NoExecute taint
	Rate     float64 `json:"rate"`    // NoExecute taints per second
}

// Node describes the state of a node.
type Node struct {
	Name   string     `json:"name"`
	Zone   string     `json:"zone"`
	Health string     `json:"health"` // Ready, NotReady, Unknown; New: no status posted yet
	Heard  *time.Time `json:"heard"`  // last contact
	Since  *time.Time `json:"since"`  // not ready since; null: ready
	Taints []string   `json:"taints"` // KEY[=VALUE]:EFFECT
	Queue  string     `json:"queue"`  // pending writes; empty: none
	// position among the nodes of its zone that wait for a NoExecute taint, from 1; 0: not waiting
	Place int        `json:"place"`
	Due   *time.Time `json:"due"` // expected time of the taint; null: not waiting, or rate 0
}

// Explanation describes the deadlines of a node's pods, or of one pod.
type Explanation struct {
	Time time.Time `json:"time"`
	Node Node      `json:"node"`
	Pods []Pod     `json:"pods"` // by namespace and name; if a pod was requested, only that pod
}

// Pod describes the deadline of a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// why the pod needs no eviction; empty: the taints decide
	Stays    string     `json:"stays,omitempty"`
	Deadline *time.Time `json:"deadline"` // when the pod must leave; null: never
	Taints   []Taint    `json:"taints"`   // the node's NoExecute taints, in the node's order
}

// Taint describes the effect of one taint on a pod.
type Taint struct {
	Taint      string     `json:"taint"`
	Since      time.Time  `json:"since"`
	Toleration string     `json:"toleration"` // the first match; empty: not tolerated
	Deadline   *time.Time `json:"deadline"`   // null: tolerated without a limit
}
