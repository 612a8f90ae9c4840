# Gives the function that stands for IRkernel::main(): what a gateway cannot live with in the stock kernel is changed in
# the running process, no installed file is. Needs IRkernel 1.3 and evaluate 0.20 (Debian 12); with
# an evaluate from 1.0 on only what still applies is done.
local({
    tools::Rd2txt_options(underline_titles = FALSE)
    options(keep.source = TRUE, crayon.enabled = FALSE, cli.num_colors = 1L, width = 100L,
            jupyter.plot_mimetypes = c("text/plain", "image/png"), menu.graphics = FALSE)

    # Output goes straight to the process's descriptor 1, which the gateway reads: at once, in
    # order, whatever its bytes. The stock way keeps it in R until the expression ends, and takes
    # time by the square of the lines.
    plain_output <- function(debug = FALSE) {
        list(
            get_new = function(plot = FALSE, incomplete_plots = FALSE,
                               text_callback = identity, graphics_callback = identity) {
                out <- list()
                if (plot) {
                    out$graphics <- plot_snapshot(incomplete_plots)
                    if (!is.null(out$graphics)) graphics_callback(out$graphics)
                }
                unname(out)
            },
            pause = function() NULL, unpause = function() NULL,
            close = function() character(), get_con = function() stdout()
        )
    }
    namespace <- asNamespace("evaluate")
    if (exists("watchout", namespace)) {
        environment(plain_output) <- namespace
        unlockBinding("watchout", namespace)
        assign("watchout", plain_output, namespace)
        lockBinding("watchout", namespace)
    }

    # R calls no calling handler for an overflow of its stack, so evaluate does not see that one: what
    # catches it in the end is told of it.
    # And it runs what stands behind a failed expression on the same line: here that ends the cell too.
    overflow <- NULL
    failed <- FALSE
    has_failed <- function() failed
    caught <- function(e) {
        failed <<- TRUE
        if (is.null(overflow) && is_overflow(e)) overflow <<- e
        invisible(structure(conditionMessage(e), class = "try-error", condition = e))
    }
    told <- function(code) {
        if (identical(code, quote(try(f, silent = TRUE)))) {
            return(as.call(list(quote(tryCatch), quote(f), error = caught)))
        }
        if (is.call(code)) {
            for (i in seq_along(code)) if (is.call(code[[i]])) code[[i]] <- told(code[[i]])
            if (identical(code[1:2], quote(`for`(expr)))) {
                code[[4]] <- call("{", call("if", as.call(list(has_failed)), quote(break)), code[[4]])
            }
        }
        code
    }
    if (exists("evaluate_call", namespace)) {
        changed <- get("evaluate_call", namespace)
        body(changed) <- told(body(changed))
        unlockBinding("evaluate_call", namespace)
        assign("evaluate_call", changed, namespace)
        lockBinding("evaluate_call", namespace)
    }

    # ---- silent requests of the gateway ----

    helper <- new.env()
    saved <- list()
    helper$enter <- function(text) {
        spec <- jsonlite::fromJSON(text, simplifyVector = FALSE)
        names <- names(spec$env)
        cwd <- NULL
        if (!is.null(spec$cwd)) cwd <- setwd(spec$cwd)
        saved[[length(saved) + 1L]] <<- list(cwd = cwd, names = names, old = Sys.getenv(names, NA, names = FALSE))
        if (length(names)) do.call(Sys.setenv, spec$env)
        TRUE
    }
    helper$leave <- function() {
        for (one in rev(saved)) {
            for (i in seq_along(one$names)) {
                if (is.na(one$old[[i]])) Sys.unsetenv(one$names[[i]])
                else do.call(Sys.setenv, stats::setNames(list(one$old[[i]]), one$names[[i]]))
            }
            if (!is.null(one$cwd)) try(setwd(one$cwd), silent = TRUE)
        }
        saved <<- list()
        TRUE
    }

    # What enter does, for good: a kernel that waited for its user gets the user's.
    helper$settle <- function(text) {
        helper$enter(text)
        saved[[length(saved)]] <<- NULL
        TRUE
    }
    # Goes the way of cells, unseen, until R has compiled it, and runs the template's code, whose names are its own.
    executor_now <- NULL
    helper$warm <- function(code) {
        executor <- executor_now
        request <- list(content = list(code = "1 + 1", silent = FALSE, store_history = FALSE, allow_stdin = FALSE))
        fields <- as.environment(executor)
        kept <- mget(c("send_response", "current_request", "payload", "err", "interrupted", "last_recorded_plot"), fields)
        on.exit(list2env(kept, fields))
        assign("send_response", function(...) NULL, fields)
        for (i in 1:3) run_cell(executor, request)
        done <- evaluate::evaluate(code, envir = new.env(parent = globalenv()), stop_on_error = 1L,
                                   output_handler = evaluate::new_output_handler(value = function(x, visible) NULL))
        for (part in done) if (inherits(part, "error")) stop(part)
        TRUE
    }

    items_max <- 1000L
    preview_max <- 200L
    preview_of <- function(value) {
        text <- if (is.function(value)) "function"
                else if (is.environment(value)) "<environment>"
                else if (is.object(value) && isS4(value)) sprintf("<S4 %s>", class(value)[[1]])
                else {
                    value <- unclass(value)
                    attributes(value) <- attributes(value)["names"]
                    if (is.list(value)) value <- lapply(utils::head(value, 10L), function(v) if (is.atomic(v)) utils::head(as.vector(v), 10L) else class(v)[[1]])
                    else value <- utils::head(value, 10L)
                    paste(deparse(value, width.cutoff = 500L, nlines = 5L, control = c("keepNA", "keepInteger", "niceNames")), collapse = " ")
                }
        text <- enc2utf8(text)
        if (nchar(text) > preview_max) paste0(substr(text, 1L, preview_max - 1L), "\u2026") else text
    }
    # NA becomes null, a vector of one a scalar.
    describe <- function(name, value) {
        shape <- if (is.data.frame(value)) c(.row_names_info(value, 2L), length(unclass(value)))
                 else attr(value, "dim", exact = TRUE)
        sized <- !is.environment(value)
        list(
            name = name,
            type = class(value)[[1]],
            shape = if (is.null(shape)) NA else as.list(as.integer(shape)),
            length = if (sized) length(unclass(value)) else NA,
            bytes = if (sized) as.numeric(utils::object.size(value)) else NA,
            preview = tryCatch(preview_of(value), error = function(e) "")
        )
    }
    # No active binding is called; a promise that fails is left out.
    helper$variables <- function() {
        items <- list()
        for (name in ls(globalenv())) {
            if (length(items) >= items_max) break
            if (bindingIsActive(name, globalenv())) next
            value <- tryCatch(get(name, globalenv(), inherits = FALSE), error = identity)
            if (is.function(value) || inherits(value, "condition")) next
            items[[length(items) + 1L]] <- describe(name, value)
        }
        list(items = items, `next` = NA)
    }

    asked <- "^__import__\\('sandal_context'\\)\\.(enter|leave|settle|warm|variables)\\((.*)\\)$"
    answer <- function(text) {
        parts <- regmatches(text, regexec(asked, text))[[1]]
        if (!length(parts)) stop("this kernel evaluates no user expressions")
        value <- if (nzchar(parts[[3]])) helper[[parts[[2]]]](jsonlite::fromJSON(parts[[3]]))
                 else helper[[parts[[2]]]]()
        list(status = "ok", data = list(`application/json` = value), metadata = IRkernel:::namedlist())
    }
    answer_silently <- function(executor, request) {
        values <- lapply(request$content$user_expressions, function(text) {
            tryCatch(answer(text), error = function(e) {
                list(status = "error", ename = class(e)[[1]], evalue = conditionMessage(e), traceback = list())
            })
        })
        if (!length(values)) values <- IRkernel:::namedlist()
        executor$send_response("execute_reply", request, "shell",
            list(status = "ok", execution_count = executor$execution_count, payload = list(), user_expressions = values))
    }

    # ---- errors ----

    plain_message <- function(e) tryCatch(enc2utf8(paste(conditionMessage(e), collapse = "\n")), error = function(e2) "an error without a message")
    name_of <- function(e) {
        name <- class(e)[[1]]
        if (name == "simpleError") "Error" else name
    }
    # Frames of the cell: after evaluate's own, before those of the handlers.
    evaluated <- quote(eval(expr, envir, enclos))
    user_frames <- function(frames) {
        ours <- vapply(frames, identical, logical(1), evaluated)
        if (any(ours)) frames <- frames[-seq_len(max(which(ours)))]
        names <- vapply(frames, function(call) paste(deparse(call[[1]], nlines = 1L), collapse = ""), "")
        # A handler that R calls itself stands in its call as a function, not by a name.
        called <- vapply(frames, function(call) is.function(call[[1]]), logical(1))
        end <- which(called | grepl("^(\\.handleSimpleError|output_handler\\$error|signal_abort|signalCondition)", names))
        if (length(end)) frames <- utils::head(frames, min(end) - 1L)
        IRkernel:::skip_repeated(frames)
    }
    our_error <- function(e) {
        deep <- is_overflow(e)
        calls <- if (deep || is_parse(e)) list() else tryCatch(user_frames(sys.calls()), error = function(e2) list())
        call <- if (deep) NULL else conditionCall(e)
        where <- if (is.null(call) || identical(call, evaluated) || is_parse(e)) "Error:"
                 else sprintf("Error in %s :", deparse(call, nlines = 1L)[[1]])
        stack <- tryCatch(sub("   # at line ([0-9-]+) of file .*$", "   # at line \\1", IRkernel:::format_stack(calls)), error = function(e2) character())
        traceback <- c(paste(where, plain_message(e)), if (length(stack)) c("Traceback:", stack))
        if (!is_parse(e) && length(line_at)) traceback <- c(traceback, sprintf("at line %d of the cell", line_at))
        list(ename = name_of(e), evalue = plain_message(e), traceback = as.list(traceback))
    }
    is_parse <- function(e) identical(conditionCall(e)[[1]], quote(parse))
    is_overflow <- function(e) inherits(e, "stackOverflowError") || grepl("infinite recursion|stack usage", plain_message(e))
    line_at <- integer()
    line_next <- 1L

    # ---- running ----

    quitting <- NULL
    leave_cell <- function(why) {
        signalCondition(structure(class = c("sandal_leave", "interrupt", "condition"), list(message = why, call = NULL)))
    }
    leave_now <- function(status) {
        quitting <<- as.integer(status)
        leave_cell("quit")
    }

    # A page that says that there is no page is none: what has no help and no value is not found.
    none_is_no_help <- function(code) {
        if (identical(code, quote(IRdisplay::prepare_mimebundle(help_obj)$data))) {
            return(quote(if (length(help_obj)) IRdisplay::prepare_mimebundle(help_obj)$data))
        }
        if (is.call(code)) for (i in seq_along(code)) if (is.call(code[[i]])) code[[i]] <- none_is_no_help(code[[i]])
        code
    }

    # Methods of the one executor are replaced in the object: its class is sealed.
    mend <- function(kernel) {
        executor <- kernel$executor
        executor_now <<- executor
        inspect <- kernel$inspect
        body(inspect) <- none_is_no_help(body(inspect))
        assign("inspect", inspect, envir = as.environment(kernel))
        # The stock reply has its content inside its content, where no client looks.
        comms <- kernel$comm_manager
        assign("on_comm_info_request", function(request) {
            wanted <- request$content$target_name
            open <- Filter(function(comm) is.null(wanted) || identical(comm$target_name, wanted), comms$commid_to_comm)
            listed <- if (length(open)) comms$make_comm_list(open) else IRkernel:::namedlist() # {} in JSON, not []
            comms$send_response("comm_info_reply", request, "shell", list(status = "ok", comms = listed))
        }, envir = as.environment(comms))
        # The stock one takes an interrupt for an answer.
        executor$handle_stdin <- function() {
            wanted <- pbdZMQ::ZMQ.PO()$POLLIN
            repeat {
                pbdZMQ::zmq.poll(c(kernel$sockets$stdin), c(wanted), MC = pbdZMQ::ZMQ.MC(check.eintr = TRUE))
                if (bitwAnd(pbdZMQ::zmq.poll.get.revents(1), wanted)) {
                    parts <- pbdZMQ::zmq.recv.multipart(kernel$sockets$stdin, unserialize = FALSE)
                    return(kernel$wire_to_msg(parts)$content$value)
                }
            }
        }
        put <- function(name, f) assign(name, f, envir = as.environment(executor))
        put("quit", function(save = "default", status = 0, runLast = TRUE) leave_now(status))
        put("handle_message", function(o) {
            text <- conditionMessage(o)
            executor$stream(if (endsWith(text, "\n")) text else paste0(text, "\n"), "stderr")
        })
        stock_readline <- executor$readline
        put("readline", function(prompt = "") {
            if (!isTRUE(executor$current_request$content$allow_stdin)) {
                stop("nobody answers readline() in this run", call. = FALSE)
            }
            answer <- stock_readline(prompt)
            answer
        })
        put("handle_error", function(e) {
            # Deep in the stack there is no room for much: what is costly is left out then.
            executor$err <- tryCatch(our_error(e), error = function(e2) {
                list(ename = "Error", evalue = plain_message(e), traceback = list(plain_message(e)))
            })
        })
        put("execute", function(request) {
            if (!is.character(request$content$code)) {
                executor$send_response("execute_reply", request, "shell", list(
                    status = "error", execution_count = executor$execution_count,
                    ename = "TypeError", evalue = "code is not a string", traceback = list()))
            } else if (isTRUE(request$content$silent) && !nzchar(request$content$code)) {
                answer_silently(executor, request)
            } else {
                run_cell(executor, request)
            }
        })
    }

    handlers <- function(executor) {
        evaluate::new_output_handler(
            source = function(src) {
                if (failed) leave_cell("failed")
                text <- if (is.character(src)) src else src$src
                line_at <<- line_next + nchar(gsub("[^\n]", "", sub("^(\\s*).*$", "\\1", text)))
                line_next <<- line_next + nchar(gsub("[^\n]", "", text))
            },
            text = identity,
            graphics = executor$handle_graphics, message = executor$handle_message, warning = executor$handle_warning,
            error = executor$handle_error,
            value = executor$handle_value)
    }

    run_cell <- function(executor, request) {
        executor$send_response("execute_input", request, "iopub",
            list(code = request$content$code, execution_count = executor$execution_count))
        executor$current_request <- request
        executor$payload <- list()
        executor$err <- list()
        executor$interrupted <- FALSE
        executor$last_recorded_plot <- NULL
        quitting <<- NULL
        overflow <<- NULL
        failed <<- FALSE
        line_at <<- integer()
        line_next <<- 1L
        IRkernel:::replace_in_package("base", "readline", executor$readline)
        IRkernel:::add_to_user_searchpath("getPass", executor$get_pass, "getPass")
        IRkernel:::replace_in_package("base", "quit", executor$quit)
        IRkernel:::replace_in_package("base", "q", executor$quit)
        tryCatch(
            withRestarts(
                evaluate::evaluate(request$content$code, envir = .GlobalEnv, output_handler = handlers(executor), stop_on_error = 1L),
                abort = function() NULL), # R's own leads to its top level, and this kernel runs below that
            interrupt = function(cond) if (!inherits(cond, "sandal_leave")) executor$interrupted <- TRUE,
            error = executor$handle_error)
        if (!is.null(overflow) && is.null(executor$err$ename)) executor$err <- our_error(overflow)
        if (!is.null(executor$last_recorded_plot)) executor$send_plot(executor$last_recorded_plot)
        answer_cell(executor, request)
    }

    answer_cell <- function(executor, request) {
        failed <- !is.null(executor$err$ename)
        status <- if (executor$interrupted) "abort" else if (failed) "error" else "ok"
        if (status == "error") executor$send_response("error", request, "iopub", executor$err)
        if (!is.null(quitting)) executor$payload <- list(list(source = "ask_exit", keepkernel = FALSE))
        executor$send_response("execute_reply", request, "shell", c(
            list(status = status, execution_count = executor$execution_count),
            switch(status, ok = list(payload = executor$payload, user_expressions = IRkernel:::namedlist()), error = executor$err)))
        if (executor$interrupted || failed) executor$abort_queued_messages()
        if (executor$should_store_history()) executor$execution_count <- executor$execution_count + 1L
        if (!is.null(quitting)) {
            executor$send_response("status", request, "iopub", list(execution_state = "idle"))
            Sys.sleep(0.05) # for the sockets
            base_quit("no", quitting, FALSE)
        }
    }
    base_quit <- base::quit

    # Where install.packages() writes for its user; R takes only what is there when it starts.
    own_library <- function() {
        own <- path.expand(strsplit(Sys.getenv("R_LIBS_USER"), ":", fixed = TRUE)[[1]])
        if (length(own) == 0) return()
        dir.create(own[[1]], showWarnings = FALSE, recursive = TRUE)
        .libPaths(c(own[[1]], .libPaths()))
    }

    function(connection_file = commandArgs(TRUE)[[1]]) {
        own_library()
        kernel <- IRkernel:::Kernel$new(connection_file = connection_file)
        mend(kernel)
        kernel$run()
    }
})
