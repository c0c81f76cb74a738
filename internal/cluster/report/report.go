// Package report is how jettison-cluster nodes tells of itself: what it answers, and the commands
// that ask it.
//
//	command.go Command: jettison-cluster explain
//	report.go  Status, Explanation: what is answered
//	ask.go     asks a running one
//	print.go   tables of answers
package report

import "time"

// Paths of what is answered, below the address.
const (
	StatusPath  = "/v1/nodes"
	ExplainPath = "/v1/explain" // ?object=NODE, POD or NAMESPACE/POD
)

// Error is the answer where there is none.
type Error struct {
	Error  string `json:"error"`
	Leader string `json:"leader,omitempty"` // whom to ask instead
}

// Status is how all nodes are.
type Status struct {
	Time   time.Time       `json:"time"`
	Leader string          `json:"leader"` // who answers
	Mode   string          `json:"mode"`
	Held   string          `json:"held,omitempty"`  // why it does not act
	Doubt  string          `json:"doubt,omitempty"` // why no node is tainted for a while
	Read   time.Time       `json:"read"`            // when nodes and leases were read
	Zones  map[string]Zone `json:"zones"`
	Nodes  []Node          `json:"nodes"` // by name
	Queues map[string]int  `json:"queues"`
	Next   *time.Time      `json:"next"` // the nearest deadline; null: there is none
}

// Zone is how the nodes of a zone are, all in all.
type Zone struct {
	State    string  `json:"state"`
	Ready    int     `json:"ready"`
	NotReady int     `json:"notReady"`
	Waiting  int     `json:"waiting"` // for a NoExecute taint
	Rate     float64 `json:"rate"`    // nodes a second that get one
}

// Node is how a node is.
type Node struct {
	Name   string     `json:"name"`
	Zone   string     `json:"zone"`
	Health string     `json:"health"` // Ready, NotReady, Unknown; New: it has said nothing yet
	Heard  *time.Time `json:"heard"`  // when it was heard of last
	Since  *time.Time `json:"since"`  // since when it is not ready; null: it is
	Taints []string   `json:"taints"` // KEY[=VALUE]:EFFECT
	Queue  string     `json:"queue"`  // what of it waits to be done; empty: nothing
	// among the nodes of its zone that wait for a NoExecute taint, from 1; 0: it does not
	Place int        `json:"place"`
	Due   *time.Time `json:"due"` // when its turn is; null: it does not wait, or the rate is 0
}

// Explanation says what becomes of a node's pods, or of a pod.
type Explanation struct {
	Time time.Time `json:"time"`
	Node Node      `json:"node"`
	Pods []Pod     `json:"pods"` // by namespace and name; a pod alone, where it was asked for
}

// Pod is what becomes of a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// why it needs no eviction, whatever the taints; empty: they decide
	Stays    string     `json:"stays,omitempty"`
	Deadline *time.Time `json:"deadline"` // when it has to go; null: never
	Taints   []Taint    `json:"taints"`   // that evict, as the node has them
}

// Taint is what one taint means for a pod.
type Taint struct {
	Taint      string     `json:"taint"`
	Since      time.Time  `json:"since"`
	Toleration string     `json:"toleration"` // that counts; empty: it is not tolerated
	Deadline   *time.Time `json:"deadline"`   // null: it is tolerated for ever
}
