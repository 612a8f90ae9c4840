/* Message-level golden cases: what a kernel says, and the events that a client sees. Every row of
 * the tables "Outputs" and "Errors" of stock ipykernel, with the peculiar ones of IRkernel and
 * IJavaScript. An expected event must equal the real one but for run and seq; of `result` only the
 * fields that are named are compared. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "run_util.h"

typedef struct golden {
    const char *name;
    const char *language; /* NULL = python */
    const char *messages;
    const char *events;
    bool ansi, silent;
    kg_run_status_t status;
} golden_t;

#define OK "[\"execute_reply\",{\"status\":\"ok\",\"execution_count\":1}]"
#define STREAM(n, t) "[\"stream\",{\"name\":\"" n "\",\"text\":\"" t "\"}]"
#define RESULT(d) "[\"execute_result\",{\"execution_count\":1,\"data\":" d ",\"metadata\":{}}]"
#define DISPLAY(d) "[\"display_data\",{\"data\":" d ",\"metadata\":{}}]"
#define DISPLAY_ID(d, id)                                                                          \
    "[\"display_data\",{\"data\":" d ",\"metadata\":{},\"transient\":{\"display_id\":\"" id "\"}}" \
    "]"
#define UPDATE(d, id)                                                                              \
    "[\"update_display_data\",{\"data\":" d ",\"metadata\":{},\"transient\":{\"display_id\":\"" id \
    "\"}}]"
#define R_(type, data, text, formats, main)                                                        \
    "{\"type\":\"" type "\",\"data\":" data ",\"text\":" text ",\"formats\":" formats              \
    ",\"metadata\":{},\"main\":" main ",\"display_id\":null}"
#define E_DISPLAY(r) "{\"type\":\"display\",\"result\":" r "}"
#define E_OUT(t) "{\"type\":\"stdout\",\"text\":\"" t "\"}"
#define E_ERR(t) "{\"type\":\"stderr\",\"text\":\"" t "\"}"

/* clang-format off */
static const golden_t cases[] = {
    {.name = "last expression",
     .messages = "[" RESULT("{\"text/plain\":\"2\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"2\"", "\"2\"", "{\"text/plain\":\"2\"}", "true"))
               ",{\"type\":\"result\",\"status\":\"ok\",\"text\":\"2\",\"output\":\"2\",\"stdout\":\"\",\"error\":"
               "null,\"truncated\":null,\"late\":false}]"},
    {.name = "None shows nothing",
     .messages = "[" OK "]",
     .events = "[{\"type\":\"result\",\"status\":\"ok\",\"text\":\"\",\"results\":[]}]"},
    {.name = "DataFrame",
     .messages = "[" RESULT("{\"text/plain\":\"   a\",\"text/html\":\"<div>a</div>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<div>a</div>\"", "\"   a\"",
                                "{\"text/html\":\"<div>a</div>\",\"text/plain\":\"   a\"}", "true"))
               ",{\"type\":\"result\",\"text\":\"   a\"}]"},
    {.name = "plot: base64 ends with a newline",
     .messages = "[" DISPLAY("{\"text/plain\":\"<Figure size 640x480 with 1 Axes>\",\"image/png\":\"iVBO\\nRw0=\\n\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("image/png", "\"iVBORw0=\"", "\"<Figure size 640x480 with 1 Axes>\"",
                                "{\"image/png\":\"iVBORw0=\",\"text/plain\":\"<Figure size 640x480 with 1 Axes>\"}",
                                "false")) ",{\"type\":\"result\",\"text\":\"\",\"output\":\"\"}]"},
    {.name = "plotly: no text/plain",
     .messages = "[" DISPLAY("{\"application/vnd.plotly.v1+json\":{\"data\":[NaN,1]},\"text/html\":\"<b>x</b>\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("application/vnd.plotly.v1+json", "{\"data\":[null,1]}", "\"x\"",
                                "{\"application/vnd.plotly.v1+json\":{\"data\":[null,1]},\"text/html\":\"<b>x</b>\"}",
                                "false")) ",{\"type\":\"result\",\"text\":\"\"}]"},
    {.name = "JSON object: useless text/plain",
     .messages = "[" RESULT("{\"application/json\":{\"a\": 1},\"text/plain\":\"<IPython.core.display.JSON object>\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("application/json", "{\"a\":1}", "\"{\\\"a\\\":1}\"",
                                "{\"application/json\":{\"a\":1},\"text/plain\":\"<IPython.core.display.JSON object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"{\\\"a\\\":1}\"}]"},
    {.name = "Image: useless text/plain, nothing else textual",
     .messages = "[" RESULT("{\"image/png\":\"AA==\",\"text/plain\":\"<IPython.core.display.Image object>\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("image/png", "\"AA==\"", "\"[image/png]\"",
                                "{\"image/png\":\"AA==\",\"text/plain\":\"<IPython.core.display.Image object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"[image/png]\"}]"},
    {.name = "SVG outranks PNG",
     .messages = "[" DISPLAY("{\"image/png\":\"AA==\",\"image/svg+xml\":\"<svg/>\"}") "]",
     .events = "[" E_DISPLAY(R_("image/svg+xml", "\"<svg/>\"", "\"[image/svg+xml]\"",
                                "{\"image/svg+xml\":\"<svg/>\",\"image/png\":\"AA==\"}", "false")) ",{\"type\":\"result\"}]"},
    {.name = "Latex",
     .messages = "[" RESULT("{\"text/latex\":\"$x$\",\"text/plain\":\"<IPython.core.display.Latex object>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/latex", "\"$x$\"", "\"$x$\"",
                                "{\"text/latex\":\"$x$\",\"text/plain\":\"<IPython.core.display.Latex object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"$x$\"}]"},
    {.name = "Markdown",
     .messages = "[" RESULT("{\"text/markdown\":\"**x**\",\"text/plain\":\"<IPython.core.display.Markdown object>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/markdown", "\"**x**\"", "\"**x**\"",
                                "{\"text/markdown\":\"**x**\",\"text/plain\":\"<IPython.core.display.Markdown object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"**x**\"}]"},
    {.name = "HTML: tags out of the text",
     .messages = "[" RESULT("{\"text/html\":\"<style>a{}</style><b>1 &lt; 2</b><script>x<y</script>!\",\"text/plain\":\"<IPython.core.display.HTML object>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<style>a{}</style><b>1 &lt; 2</b><script>x<y</script>!\"", "\"1 < 2!\"",
                                "{\"text/html\":\"<style>a{}</style><b>1 &lt; 2</b><script>x<y</script>!\",\"text/plain\":\"<IPython.core.display.HTML object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"1 < 2!\"}]"},
    {.name = "Javascript",
     .messages = "[" DISPLAY("{\"application/javascript\":\"alert(1)\",\"text/plain\":\"<IPython.core.display.Javascript object>\"}") "]",
     .events = "[" E_DISPLAY(R_("application/javascript", "\"alert(1)\"", "\"[application/javascript]\"",
                                "{\"application/javascript\":\"alert(1)\",\"text/plain\":\"<IPython.core.display.Javascript object>\"}",
                                "false")) ",{\"type\":\"result\"}]"},
    {.name = "Audio and IFrame are html",
     .messages = "[" RESULT("{\"text/html\":\"<audio src=\\\"data:x\\\"></audio>\",\"text/plain\":\"<IPython.lib.display.Audio object>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<audio src=\\\"data:x\\\"></audio>\"", "\"\"",
                                "{\"text/html\":\"<audio src=\\\"data:x\\\"></audio>\",\"text/plain\":\"<IPython.lib.display.Audio object>\"}",
                                "true")) ",{\"type\":\"result\",\"text\":\"\"}]"},
    {.name = "GeoJSON: an unlisted type outranks text/plain",
     .messages = "[" DISPLAY("{\"text/plain\":\"<IPython.display.GeoJSON object>\",\"application/geo+json\":{\"type\":\"Point\"}}") "]",
     .events = "[" E_DISPLAY(R_("application/geo+json", "{\"type\":\"Point\"}", "\"<IPython.display.GeoJSON object>\"",
                                "{\"application/geo+json\":{\"type\":\"Point\"},\"text/plain\":\"<IPython.display.GeoJSON object>\"}",
                                "false")) ",{\"type\":\"result\"}]"},
    {.name = "dataframe columns never decide the type",
     .messages = "[" RESULT("{\"application/vnd.dataframe+json\":{\"c\":[]},\"text/html\":\"<i>h</i>\",\"text/plain\":\"p\"}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<i>h</i>\"", "\"p\"",
                                "{\"text/html\":\"<i>h</i>\",\"text/plain\":\"p\",\"application/vnd.dataframe+json\":{\"c\":[]}}",
                                "true")) ",{\"type\":\"result\"}]"},
    {.name = "display id and update in place",
     .messages = "[" DISPLAY_ID("{\"text/plain\":\"1\"}", "d1") "," UPDATE("{\"text/plain\":\"2\"}", "d1") "," OK "]",
     .events = "[{\"type\":\"display\",\"result\":{\"type\":\"text/plain\",\"data\":\"1\",\"text\":\"1\",\"formats\":{\"text/plain\":\"1\"},\"metadata\":{},\"main\":false,\"display_id\":\"d1\"}},"
               "{\"type\":\"update\",\"display_id\":\"d1\",\"result\":{\"type\":\"text/plain\",\"data\":\"2\",\"text\":\"2\",\"formats\":{\"text/plain\":\"2\"},\"metadata\":{},\"main\":false,\"display_id\":\"d1\"}},"
               "{\"type\":\"result\",\"results\":[{\"type\":\"text/plain\",\"data\":\"2\",\"text\":\"2\",\"formats\":{\"text/plain\":\"2\"},\"metadata\":{},\"main\":false,\"display_id\":\"d1\"}]}]"},
    {.name = "an update of an id never shown is a display",
     .messages = "[" UPDATE("{\"text/plain\":\"2\"}", "nope") "]",
     .events = "[{\"type\":\"display\",\"result\":{\"type\":\"text/plain\",\"data\":\"2\",\"text\":\"2\",\"formats\":{\"text/plain\":\"2\"},\"metadata\":{},\"main\":false,\"display_id\":\"nope\"}},{\"type\":\"result\"}]"},
    {.name = "a known id shown again is a second display, and both follow updates",
     .messages = "[" DISPLAY_ID("{\"text/plain\":\"1\"}", "d") "," DISPLAY_ID("{\"text/plain\":\"2\"}", "d") "," UPDATE("{\"text/plain\":\"3\"}", "d") "," OK "]",
     .events = "[{\"type\":\"display\",\"result\":{\"type\":\"text/plain\",\"data\":\"1\",\"text\":\"1\",\"formats\":{\"text/plain\":\"1\"},\"metadata\":{},\"main\":false,\"display_id\":\"d\"}},"
               "{\"type\":\"display\",\"result\":{\"type\":\"text/plain\",\"data\":\"2\",\"text\":\"2\",\"formats\":{\"text/plain\":\"2\"},\"metadata\":{},\"main\":false,\"display_id\":\"d\"}},"
               "{\"type\":\"update\",\"display_id\":\"d\",\"result\":{\"type\":\"text/plain\",\"data\":\"3\",\"text\":\"3\",\"formats\":{\"text/plain\":\"3\"},\"metadata\":{},\"main\":false,\"display_id\":\"d\"}},"
               "{\"type\":\"result\",\"results\":[{\"type\":\"text/plain\",\"data\":\"3\",\"text\":\"3\",\"formats\":{\"text/plain\":\"3\"},\"metadata\":{},\"main\":false,\"display_id\":\"d\"},"
               "{\"type\":\"text/plain\",\"data\":\"3\",\"text\":\"3\",\"formats\":{\"text/plain\":\"3\"},\"metadata\":{},\"main\":false,\"display_id\":\"d\"}]}]"},
    {.name = "display(display_id=True): no data",
     .messages = "[" DISPLAY_ID("{}", "d") "]",
     .events = "[{\"type\":\"display\",\"result\":{\"type\":\"text/plain\",\"data\":\"\",\"text\":\"\",\"formats\":{},\"metadata\":{},\"main\":false,\"display_id\":\"d\"}},{\"type\":\"result\"}]"},
    {.name = "clear_output drops what there is",
     .messages = "[" STREAM("stdout", "a\\n") "," DISPLAY("{\"text/plain\":\"1\"}") ",[\"clear_output\",{\"wait\":false}]," STREAM("stdout", "b\\n") "," OK "]",
     .events = "[" E_OUT("a\\n") "," E_DISPLAY(R_("text/plain", "\"1\"", "\"1\"", "{\"text/plain\":\"1\"}", "false"))
               ",{\"type\":\"clear\",\"wait\":false}," E_OUT("b\\n")
               ",{\"type\":\"result\",\"stdout\":\"b\\n\",\"output\":\"b\\n\",\"text\":\"b\",\"results\":[]}]"},
    {.name = "clear_output(wait=True) waits for output",
     .messages = "[" STREAM("stdout", "a\\n") ",[\"clear_output\",{\"wait\":true}],[\"clear_output\",{\"wait\":true}]," STREAM("stdout", "b\\n") ",[\"clear_output\",{\"wait\":true}]," OK "]",
     .events = "[" E_OUT("a\\n") ",{\"type\":\"clear\",\"wait\":true},{\"type\":\"clear\",\"wait\":true}," E_OUT("b\\n")
               ",{\"type\":\"clear\",\"wait\":true},{\"type\":\"result\",\"stdout\":\"b\\n\",\"text\":\"b\"}]"},
    {.name = "raw display: values of other types",
     .messages = "[" DISPLAY("{\"text/plain\":5,\"application/json\":\"{\\\"a\\\": [1, NaN]}\",\"text/html\":[\"<b>\",\"x</b>\"],\"image/png\":null,\"text/latex\":{\"a\":1}}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<b>x</b>\"", "\"5\"",
                                "{\"text/html\":\"<b>x</b>\",\"text/latex\":\"{\\\"a\\\":1}\",\"application/json\":{\"a\":[1,null]},\"text/plain\":\"5\"}",
                                "false")) ",{\"type\":\"result\"}]"},
    {.name = "a JSON string that holds no JSON stays a string",
     .messages = "[" DISPLAY("{\"application/json\":\"hello\"}") "]",
     .events = "[" E_DISPLAY(R_("application/json", "\"hello\"", "\"\\\"hello\\\"\"", "{\"application/json\":\"hello\"}", "false")) ",{\"type\":\"result\"}]"},
    {.name = "metadata is kept",
     .messages = "[[\"display_data\",{\"data\":{\"image/png\":\"AA==\"},\"metadata\":{\"image/png\":{\"width\":420}}}]]",
     .events = "[{\"type\":\"display\",\"result\":{\"type\":\"image/png\",\"data\":\"AA==\",\"text\":\"[image/png]\",\"formats\":{\"image/png\":\"AA==\"},\"metadata\":{\"image/png\":{\"width\":420}},\"main\":false,\"display_id\":null}},{\"type\":\"result\"}]"},
    {.name = "duplicate keys: the last wins",
     .messages = "[" RESULT("{\"text/plain\":\"1\",\"text\\/plain\":\"2\"}") "]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"2\"", "\"2\"", "{\"text/plain\":\"2\"}", "true")) ",{\"type\":\"result\",\"text\":\"2\"}]"},
    {.name = "streams join, kinds don't",
     .messages = "[" STREAM("stdout", "a") "," STREAM("stdout", "b\\n") "," STREAM("stderr", "w\\n") "," STREAM("stdout", "c") "," OK "]",
     .events = "[" E_OUT("ab\\n") "," E_ERR("w\\n") "," E_OUT("c")
               ",{\"type\":\"result\",\"stdout\":\"ab\\nc\",\"stderr\":\"w\\n\",\"output\":\"ab\\nw\\nc\",\"text\":\"ab\\nc\"}]"},
    {.name = "output: a value stands on a line of its own",
     .messages = "[" STREAM("stdout", "a") "," RESULT("{\"text/plain\":\"2\"}") "," STREAM("stderr", "e") "," OK "]",
     .events = "[" E_OUT("a") "," E_DISPLAY(R_("text/plain", "\"2\"", "\"2\"", "{\"text/plain\":\"2\"}", "true")) "," E_ERR("e")
               ",{\"type\":\"result\",\"text\":\"2\",\"output\":\"a\\n2\\ne\",\"stdout\":\"a\"}]"},
    {.name = "ANSI: kept in events, out of text and output",
     .messages = "[" STREAM("stdout", "\\u001b[31mred\\u001b[0m\\n\\u001b[0m") "," RESULT("{\"text/plain\":\"\\u001b[1mx\\u001b[0m\"}") "," OK "]",
     .events = "[" E_OUT("\\u001b[31mred\\u001b[0m\\n\\u001b[0m") ","
               E_DISPLAY(R_("text/plain", "\"\\u001b[1mx\\u001b[0m\"", "\"x\"", "{\"text/plain\":\"\\u001b[1mx\\u001b[0m\"}", "true"))
               ",{\"type\":\"result\",\"text\":\"x\",\"output\":\"red\\nx\",\"stdout\":\"\\u001b[31mred\\u001b[0m\\n\\u001b[0m\"}]"},
    {.name = "text from stdout: without its last newline, without ANSI",
     .messages = "[" STREAM("stdout", "\\u001b[31mred\\n\\n\\u001b[0m") "," OK "]",
     .events = "[" E_OUT("\\u001b[31mred\\n\\n\\u001b[0m") ",{\"type\":\"result\",\"text\":\"red\\n\",\"output\":\"red\\n\\n\"}]"},
    {.name = "ansi:true keeps ANSI in text and traceback, never in output",
     .ansi = true,
     .messages = "[" STREAM("stdout", "\\u001b[31mred\\n") ",[\"error\",{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"\\u001b[1mt\"]}],[\"execute_reply\",{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"\\u001b[1mt\"]}]]",
     .events = "[" E_OUT("\\u001b[31mred\\n") ",{\"type\":\"error\",\"error\":{\"name\":\"E\",\"message\":\"v\",\"traceback\":[\"\\u001b[1mt\"],\"started\":true,\"state\":\"kept\"}},"
               "{\"type\":\"result\",\"status\":\"error\",\"text\":\"\\u001b[31mred\",\"output\":\"red\\nt\"}]"},
    {.name = "error",
     .messages = "[" STREAM("stdout", "before") ",[\"error\",{\"ename\":\"ZeroDivisionError\",\"evalue\":\"division by zero\",\"traceback\":[\"\\u001b[0;31m---\\u001b[0m\",\"line \\\"1\\\", x\",\"Z: d\"]}],[\"execute_reply\",{\"status\":\"error\",\"ename\":\"ZeroDivisionError\",\"evalue\":\"division by zero\",\"traceback\":[\"\\u001b[0;31m---\\u001b[0m\",\"line \\\"1\\\", x\",\"Z: d\"]}]]",
     .events = "[" E_OUT("before") ",{\"type\":\"error\",\"error\":{\"name\":\"ZeroDivisionError\",\"message\":\"division by zero\",\"traceback\":[\"---\",\"line \\\"1\\\", x\",\"Z: d\"],\"started\":true,\"state\":\"kept\"}},"
               "{\"type\":\"result\",\"status\":\"error\",\"text\":\"before\",\"output\":\"before\\n---\\nline \\\"1\\\", x\\nZ: d\",\"error\":{\"name\":\"ZeroDivisionError\",\"message\":\"division by zero\",\"traceback\":[\"---\",\"line \\\"1\\\", x\",\"Z: d\"],\"started\":true,\"state\":\"kept\"}}]"},
    {.name = "an iopub error with reply ok is no failure",
     .messages = "[[\"error\",{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"tb1\",\"tb2\"]}]," RESULT("{\"text/plain\":\"x\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"x\"", "\"x\"", "{\"text/plain\":\"x\"}", "true")) "," E_ERR("tb1\\ntb2\\n")
               ",{\"type\":\"result\",\"status\":\"ok\",\"text\":\"x\",\"stderr\":\"tb1\\ntb2\\n\",\"error\":null}]"},
    {.name = "a failing __repr__, then a real error",
     .messages = "[[\"error\",{\"ename\":\"A\",\"evalue\":\"a\",\"traceback\":[]}],[\"error\",{\"ename\":\"B\",\"evalue\":\"b\",\"traceback\":[]}],[\"execute_reply\",{\"status\":\"error\",\"ename\":\"B\",\"evalue\":\"b\",\"traceback\":[]}]]",
     .events = "[" E_ERR("A: a\\n") ",{\"type\":\"error\",\"error\":{\"name\":\"B\",\"message\":\"b\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\",\"output\":\"A: a\\nB: b\"}]"},
    {.name = "missing magic: UsageError without traceback",
     .messages = "[" STREAM("stderr", "UsageError: no\\n") ",[\"execute_reply\",{\"status\":\"error\",\"ename\":\"UsageError\",\"evalue\":\"no\",\"traceback\":[]}]]",
     .events = "[" E_ERR("UsageError: no\\n") ",{\"type\":\"error\",\"error\":{\"name\":\"UsageError\",\"message\":\"no\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\",\"text\":\"\"}]"},
    {.name = "idle without a reply is an error",
     .messages = "[[\"status\",{\"execution_state\":\"idle\"}]]",
     .status = KG_RUN_ERROR,
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"KernelError\",\"message\":\"The kernel ended the run without a reply.\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\"}]"},
    {.name = "reply without a name: the iopub error's",
     .messages = "[[\"execute_reply\",{\"status\":\"error\"}],[\"error\",{\"ename\":\"Error\",\"evalue\":\"boom\",\"traceback\":[\"Error: boom\"]}]]",
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"Error\",\"message\":\"boom\",\"traceback\":[\"Error: boom\"],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\"}]"},
    {.name = "sys.exit is an error",
     .messages = "[[\"execute_reply\",{\"status\":\"error\",\"ename\":\"SystemExit\",\"evalue\":\"3\",\"traceback\":[\"x\"]}]]",
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"SystemExit\",\"message\":\"3\",\"traceback\":[\"x\"],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\"}]"},
    {.name = "aborted reply",
     .messages = "[[\"execute_reply\",{\"status\":\"aborted\"}]]",
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"Aborted\",\"message\":\"The run was ended by a reset or delete of its context.\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"aborted\"}]"},
    {.name = "R: abort is an interrupt",
     .language = "r",
     .messages = "[[\"execute_reply\",{\"status\":\"abort\"}]]",
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"Interrupted\",\"message\":\"The run was interrupted.\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"interrupted\"}]"},
    {.name = "timeout is TimeoutError, whatever the kernel said",
     .status = KG_RUN_TIMEOUT,
     .messages = "[" STREAM("stdout", "x\\n") ",[\"error\",{\"ename\":\"KeyboardInterrupt\",\"evalue\":\"\",\"traceback\":[\"K\"]}],[\"execute_reply\",{\"status\":\"error\",\"ename\":\"KeyboardInterrupt\",\"evalue\":\"\",\"traceback\":[\"K\"]}]]",
     .events = "[" E_OUT("x\\n") ",{\"type\":\"error\",\"error\":{\"name\":\"TimeoutError\",\"message\":\"The code ran longer than its timeout.\",\"traceback\":[\"K\",\"TimeoutError: The code ran longer than its timeout.\"],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"timeout\",\"text\":\"x\",\"stdout\":\"x\\n\"}]"},
    {.name = "x? answers by the pager",
     .messages = "[[\"execute_reply\",{\"status\":\"ok\",\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"\\u001b[1mDoc\\u001b[0m\"},\"start\":0},{\"source\":\"ask_exit\"},{\"source\":\"set_next_input\",\"text\":\"y\"}]}]]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"\\u001b[1mDoc\\u001b[0m\"", "\"Doc\"", "{\"text/plain\":\"\\u001b[1mDoc\\u001b[0m\"}", "true")) ","
               E_DISPLAY(R_("text/plain", "\"y\"", "\"y\"", "{\"text/plain\":\"y\"}", "false")) ",{\"type\":\"result\",\"text\":\"Doc\"}]"},
    {.name = "silent: output but no results",
     .silent = true,
     .messages = "[" STREAM("stdout", "a") "," RESULT("{\"text/plain\":\"2\"}") "," DISPLAY("{\"text/plain\":\"3\"}") "," OK "]",
     .events = "[" E_OUT("a") ",{\"type\":\"result\",\"results\":[],\"execution_count\":null,\"text\":\"a\"}]"},
    {.name = "R: every visible value is a display, the last one is the value",
     .language = "r",
     .messages = "[" DISPLAY("{\"text/plain\":\"[1] 1\"}") "," DISPLAY("{\"text/plain\":\"[1] 2\"}") "," DISPLAY("{\"text/plain\":\"plot without title\",\"image/png\":\"AA==\"}") "," OK "]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"[1] 1\"", "\"[1] 1\"", "{\"text/plain\":\"[1] 1\"}", "false")) ","
               E_DISPLAY(R_("text/plain", "\"[1] 2\"", "\"[1] 2\"", "{\"text/plain\":\"[1] 2\"}", "false")) ","
               E_DISPLAY(R_("image/png", "\"AA==\"", "\"plot without title\"", "{\"image/png\":\"AA==\",\"text/plain\":\"plot without title\"}", "false")) ","
               "{\"type\":\"result\",\"text\":\"[1] 2\",\"output\":\"[1] 1\\n[1] 2\",\"results\":["
               R_("text/plain", "\"[1] 1\"", "\"[1] 1\"", "{\"text/plain\":\"[1] 1\"}", "false") ","
               R_("text/plain", "\"[1] 2\"", "\"[1] 2\"", "{\"text/plain\":\"[1] 2\"}", "true") ","
               R_("image/png", "\"AA==\"", "\"plot without title\"", "{\"image/png\":\"AA==\",\"text/plain\":\"plot without title\"}", "false") "]}]"},
    {.name = "R: a failed run's text is what it printed",
     .language = "r",
     .messages = "[" DISPLAY("{\"text/plain\":\"[1] 1\"}") "," STREAM("stdout", "p\\n") ",[\"execute_reply\",{\"status\":\"error\",\"ename\":\"ERROR\",\"evalue\":\"Error in f(): deep\\n\",\"traceback\":[\"Error in f(): deep\\nTraceback:\\n\"]}]]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"[1] 1\"", "\"[1] 1\"", "{\"text/plain\":\"[1] 1\"}", "false")) "," E_OUT("p\\n")
               ",{\"type\":\"error\",\"error\":{\"name\":\"ERROR\",\"message\":\"Error in f(): deep\\n\",\"traceback\":[\"Error in f(): deep\\nTraceback:\\n\"],\"started\":true,\"state\":\"kept\"}},"
               "{\"type\":\"result\",\"status\":\"error\",\"text\":\"p\",\"output\":\"[1] 1\\np\\nError in f(): deep\\nTraceback:\\n\"}]"},
    {.name = "JS: reply first, three of them, then the results",
     .language = "javascript",
     .messages = "[" OK "," OK "," OK "," RESULT("{\"text/html\":\"<b>1</b>\"}") "," RESULT("{\"text/html\":\"<b>2</b>\"}") "]",
     .events = "[" E_DISPLAY(R_("text/html", "\"<b>1</b>\"", "\"1\"", "{\"text/html\":\"<b>1</b>\"}", "true")) ","
               E_DISPLAY(R_("text/html", "\"<b>2</b>\"", "\"2\"", "{\"text/html\":\"<b>2</b>\"}", "true")) ",{\"type\":\"result\",\"status\":\"ok\",\"text\":\"2\"}]"},
    {.name = "JS: thrown non-errors",
     .language = "javascript",
     .messages = "[[\"execute_reply\",{\"status\":\"error\",\"ename\":\"string\",\"evalue\":\"s\",\"traceback\":[]}],[\"error\",{\"ename\":\"string\",\"evalue\":\"s\",\"traceback\":[]}]]",
     .events = "[{\"type\":\"error\",\"error\":{\"name\":\"string\",\"message\":\"s\",\"traceback\":[],\"started\":true,\"state\":\"kept\"}},{\"type\":\"result\",\"status\":\"error\",\"output\":\"string: s\"}]"},
    {.name = "comms, unknown types and broken content are nothing",
     .messages = "[[\"comm_open\",{\"comm_id\":\"x\"}],[\"comm_msg\",{}],[\"nonsense\",{}],[\"stream\",{\"name\":\"stdout\"}],[\"stream\",{\"text\":5}],[\"stream\",{\"name\":\"stdout\",\"text\":\"\"}],[\"status\",{}],[\"shutdown_reply\",{\"restart\":false}]," OK "]",
     .events = "[{\"type\":\"result\",\"status\":\"ok\",\"text\":\"\",\"output\":\"\"}]"},
    {.name = "wrong shapes of a display",
     .messages = "[[\"display_data\",{}],[\"display_data\",{\"data\":5,\"metadata\":[],\"transient\":3}]," OK "]",
     .events = "[" E_DISPLAY(R_("text/plain", "\"\"", "\"\"", "{}", "false")) ",{\"type\":\"truncated\",\"what\":\"result\"}," E_DISPLAY(R_("text/plain", "\"\"", "\"\"", "{}", "false")) ",{\"type\":\"result\"}]"},
};

/* clang-format on */

/* Every member of want is in have and equal; without subset, nothing else is. */
static bool matches(json_t *want, json_t *have, bool subset)
{
    for (void *it = json_object_iter(want); it; it = json_object_iter_next(want, it)) {
        json_t *there = json_object_get(have, json_object_iter_key(it));
        if (!json_equal(json_object_iter_value(it), there)) {
            return false;
        }
    }
    return subset || json_object_size(want) == json_object_size(have);
}

static void check_events(const golden_t *c, const char *text)
{
    json_error_t error;
    json_t *want = json_loads(c->events, 0, &error);
    if (!want) {
        fail_msg("%s: expected events: %s at %d", c->name, error.text, error.position);
    }
    json_t *have = json_loads(text, 0, &error);
    if (!have) {
        fail_msg("%s: not JSON: %s", c->name, text);
    }
    if (json_array_size(want) != json_array_size(have)) {
        fail_msg("%s: %zu events, not %zu: %s", c->name, json_array_size(have),
                 json_array_size(want), text);
    }
    for (size_t i = 0; i < json_array_size(want); i++) {
        json_t *w = json_array_get(want, i);
        json_t *h = json_array_get(have, i);
        assert_string_equal(json_string_value(json_object_get(h, "run")), RUN_ID);
        assert_int_equal(json_integer_value(json_object_get(h, "seq")), i);
        json_object_del(h, "run");
        json_object_del(h, "seq");
        bool result = strcmp(json_string_value(json_object_get(w, "type")), "result") == 0;
        if (!matches(w, h, result)) {
            char *a = json_dumps(w, JSON_COMPACT);
            char *b = json_dumps(h, JSON_COMPACT);
            fail_msg("%s: event %zu\n  want %s\n  have %s", c->name, i, a, b);
        }
    }
    json_decref(want);
    json_decref(have);
}

static void golden_cases_events_as_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        const golden_t *c = &cases[i];
        run_test_t t;
        kg_buf_t out = {0};
        rt_begin(&t);
        t.meta.language = c->language ? c->language : "python";
        t.opts.ansi = c->ansi;
        t.opts.silent = c->silent;
        rt_open(&t);
        rt_messages(&t, c->messages);
        if (c->status == KG_RUN_OK && kg_mapper_state(t.mapper)->reply == KG_REPLY_NONE) {
            rt_message(&t, "execute_reply", "{\"status\":\"ok\"}");
        }
        rt_finish(&t, c->status);
        rt_events(t.log, KG_READ_FROM_START, false, 65536, &out);
        check_events(c, out.data);
        kg_buf_fini(&out);
        rt_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_cases_events_as_expected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
