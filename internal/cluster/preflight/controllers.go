package preflight

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// managerName is the name of kube-controller-manager's program, container and label.
const managerName = "kube-controller-manager"

// The controllers whose work mode replace does, and an older name that the flag still accepts.
const (
	nodeLifecycle      = "node-lifecycle-controller"
	olderNodeLifecycle = "nodelifecycle"
	taintEviction      = "taint-eviction-controller"
)

// isManager reports whether a pod runs kube-controller-manager.
func isManager(p *v1.Pod) bool {
	_, ok := managerWords(p)
	return ok && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

// quotes removes the quotes of a shell command.
var quotes = strings.NewReplacer(`"`, "", "'", "")

// managerWords returns the command line of kube-controller-manager in a pod. A shell command is
// split into its words.
func managerWords(p *v1.Pod) (words []string, ok bool) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		words = strings.Fields(quotes.Replace(strings.Join(slices.Concat(c.Command, c.Args), " ")))
		if c.Name == managerName || slices.ContainsFunc(words, isManagerProgram) {
			return words, true
		}
	}
	return nil, false
}

func isManagerProgram(word string) bool {
	return !strings.HasPrefix(word, "-") && path.Base(word) == managerName
}

// replacedControllers returns which of the replaced controllers a pod of kube-controller-manager
// runs; ok is false if its command line does not show that.
func replacedControllers(p *v1.Pod) (enabled []string, ok bool) {
	words, _ := managerWords(p)
	list, ok := controllersFlag(words)
	if !ok {
		return nil, false
	}
	for _, name := range []string{nodeLifecycle, taintEviction} {
		if isEnabled(name, list) {
			enabled = append(enabled, name)
		}
	}
	return enabled, true
}

// listCharacters are the characters of a list of controllers. Others show that a shell decides on the
// value, or that it ends earlier: with --controllers=\* and --controllers=*; all controllers run.
const listCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-*,"

// controllersFlag returns the value of --controllers in a command line. A repeated flag extends the
// list (pflag's StringSlice). ok is false if a shell, a variable or a script decides on the value.
func controllersFlag(words []string) (list []string, ok bool) {
	set := false
	for i, w := range words {
		value, found := strings.CutPrefix(w, "--controllers=")
		if w == "--controllers" && i+1 < len(words) {
			value, found = words[i+1], true
		}
		if w[0] == '$' || w[0] == '`' || found && strings.Trim(value, listCharacters) != "" {
			return nil, false
		}
		if found {
			set = true
			list = append(list, strings.Split(value, ",")...)
		}
	}
	if set {
		return list, true
	}
	// The default, unless a script may set the flag. Without a command, the image has it.
	return []string{"*"}, len(words) == 0 || strings.HasPrefix(words[0], "-") ||
		slices.ContainsFunc(words, isManagerProgram)
}

// isEnabled reports whether kube-controller-manager runs a controller: the first entry that names it
// decides, else "*" (k8s.io/controller-manager/app/helper.go, IsControllerEnabled, 0.37.2).
func isEnabled(name string, list []string) bool {
	for _, entry := range list {
		named, off := strings.CutPrefix(entry, "-")
		if named == olderNodeLifecycle {
			named = nodeLifecycle
		}
		if named == name {
			return !off
		}
	}
	return slices.Contains(list, "*")
}
