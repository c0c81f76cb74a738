package spec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/internal/base/podjson"
)

// special decodes types that are not composed of others.
var special = map[reflect.Type]func(n *yaml.Node, into reflect.Value) error{
	reflect.TypeFor[resource.Quantity](): func(n *yaml.Node, into reflect.Value) error {
		if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag == "!!bool" {
			return mistyped("a quantity such as 100Mi", n)
		}
		q, err := podjson.ParseQuantity(strings.TrimSpace(n.Value))
		if err == nil {
			into.Set(reflect.ValueOf(q))
		}
		return err
	},
	reflect.TypeFor[intstr.IntOrString](): func(n *yaml.Node, into reflect.Value) error {
		number, err := strconv.ParseInt(n.Value, 0, 32)
		switch {
		case isText(n):
			into.Set(reflect.ValueOf(intstr.FromString(n.Value)))
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && err == nil:
			into.Set(reflect.ValueOf(intstr.FromInt32(int32(number))))
		default:
			return mistyped("a number or a name", n)
		}
		return nil
	},
	reflect.TypeFor[[]byte](): func(n *yaml.Node, into reflect.Value) error {
		data, err := base64.StdEncoding.DecodeString(n.Value)
		if !isText(n) || err != nil {
			return errors.New("want base64") // the value may be secret
		}
		into.SetBytes(data)
		return nil
	},
}

// oldBools are truth values of YAML 1.1, the version of the kubelet's parser. In YAML 1.2 they are
// text.
var oldBools = map[string]bool{"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true,
	"On": true, "ON": true, "n": false, "N": false, "no": false, "No": false, "NO": false, "off": false,
	"Off": false, "OFF": false}

func isOldBool(n *yaml.Node) bool {
	_, ok := oldBools[n.Value]
	return ok && n.Kind == yaml.ScalarNode && n.Style == 0
}

// isText reports whether a scalar is text to all versions of YAML. A plain date, or a << that is no
// key, is text to the kubelet.
func isText(n *yaml.Node) bool {
	switch n.ShortTag() {
	case "!!str", "!!timestamp", "!!merge":
		return n.Kind == yaml.ScalarNode && !isOldBool(n)
	}
	return false
}

// scalar decodes text, a truth value or a number.
func scalar(n *yaml.Node, into reflect.Value) error {
	plain := n.Kind == yaml.ScalarNode
	switch kind := into.Kind(); kind {
	case reflect.String:
		if !isText(n) {
			return mistyped("text", n)
		}
		into.SetString(n.Value)
	case reflect.Bool:
		old := isOldBool(n)
		if !old && (!plain || n.ShortTag() != "!!bool") {
			return mistyped("true or false", n)
		}
		into.SetBool(old && oldBools[n.Value] || !old && strings.EqualFold(n.Value, "true"))
	case reflect.Int32, reflect.Int64:
		number, err := strconv.ParseInt(n.Value, 0, into.Type().Bits())
		if !plain || n.ShortTag() != "!!int" || err != nil {
			return mistyped(fmt.Sprintf("a whole number of at most %d bits", into.Type().Bits()), n)
		}
		into.SetInt(number)
	default:
		return fmt.Errorf("type %s not supported", into.Type())
	}
	return nil
}

// mistyped returns the error for a node of another type. It does not quote the value, which may be
// secret.
func mistyped(want string, n *yaml.Node) error {
	quote := ""
	if want == "text" && n.Kind == yaml.ScalarNode {
		quote = ": put it in quotes"
	}
	return fmt.Errorf("want %s, got %s%s", want, describe(n), quote)
}

// describe describes the type of a node.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isOldBool(n), n.ShortTag() == "!!bool":
		return "a truth value"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "a number"
	case isNull(n):
		return "null"
	}
	return "text"
}
