// Package fencing asks whether a silent node is dead: a program, or an HTTP server, that knows from
// outside of the cluster, as a machine's management controller or a cloud's API does. Only the word
// "dead" confirms it; whatever else comes is no answer, or the answer that it is not.
package fencing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Check asks about one node.
type Check func(ctx context.Context, n *v1.Node) (dead bool, err error)

// The words that answers begin with.
const (
	answerDead  = "dead"
	answerAlive = "alive"
)

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 4096

// New makes the check that is configured; nil: none is. A timeout bounds each.
func New(command []string, where string, timeout time.Duration) Check {
	var ask func(ctx context.Context, n *v1.Node) ([]byte, error)
	switch {
	case len(command) > 0:
		ask = func(ctx context.Context, n *v1.Node) ([]byte, error) { return run(ctx, command, n) }
	case where != "":
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		ask = func(ctx context.Context, n *v1.Node) ([]byte, error) { return get(ctx, client, where, n) }
	default:
		return nil
	}
	return func(ctx context.Context, n *v1.Node) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		text, err := ask(ctx, n)
		if err != nil {
			return false, fmt.Errorf("ask whether node %s is dead: %w", n.Name, err)
		}
		switch word := firstWord(text); word {
		case answerDead:
			return true, nil
		case answerAlive:
			return false, nil
		default:
			return false, fmt.Errorf(
				"ask whether node %s is dead: the answer begins with %.40q: want dead or alive", n.Name, word)
		}
	}
}

// first is the first word of a text.
func firstWord(text []byte) string {
	words := bufio.NewScanner(bytes.NewReader(text))
	words.Split(bufio.ScanWords)
	words.Scan()
	return words.Text()
}

// fill puts in what is known of a node.
func expand(text string, n *v1.Node, escape func(string) string) string {
	address := ""
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			address = a.Address
			break
		}
	}
	return strings.NewReplacer("{node}", escape(n.Name), "{providerID}", escape(n.Spec.ProviderID),
		"{address}", escape(address)).Replace(text)
}

// run runs a program. It has no shell and no environment but what it was given; it has to end with
// exit code 0. What a node says of itself must not become an option of it.
func run(ctx context.Context, command []string, n *v1.Node) ([]byte, error) {
	args := make([]string, 0, len(command))
	for _, a := range command[1:] {
		is := expand(a, n, func(s string) string { return s })
		if strings.HasPrefix(is, "-") && !strings.HasPrefix(a, "-") {
			return nil, fmt.Errorf("%s: argument %q becomes %.64q, which it may take for an option: it is "+
				"not asked", command[0], a, is)
		}
		args = append(args, is)
	}
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.WaitDelay = time.Second // for children that hold its output open
	out, errs := &limitedBuffer{}, &limitedBuffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %.200q", command[0], err, errs.text)
	}
	return out.text, nil
}

// head keeps the beginning of what is written to it.
type limitedBuffer struct{ text []byte }

func (h *limitedBuffer) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxAnswer-len(h.text))]...)
	return len(b), nil
}

// get asks a server, which has to answer 200.
func get(ctx context.Context, client *http.Client, where string, n *v1.Node) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, expand(where, n, url.QueryEscape),
		nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusOK:
		return nil, errors.New("the answer is " + answer.Status)
	}
	return text, nil
}
