# Gives the function that makes R the parent of forked kernels: it loads packages, and then forks for each order that comes to
# /run/sandal/zygote. What that takes is done by a library of the daemon's (gateway/sandbox/zygote/); here is what R needs
# around it. It returns in the forks alone, which run main, the function that sandal.R gives.
#
# There must be one thread before a fork (OpenBLAS ends its own), no device of graphics and no socket of ZeroMQ, and nothing random
# or secret: the forks share all of it.
local({
    library_path <- "/.sandal/sandal-zygote.so"
    socket_path <- "/run/sandal/zygote"

    # cli has a thread that ticks for its bars of progress.
    cli_stop <- function() .Call(get("clic_stop_thread", asNamespace("cli")))
    cli_start <- function() {
        namespace <- asNamespace("cli")
        about <- get("clienv", namespace)
        about$pid <- Sys.getpid()
        about$load_time <- Sys.time()
        .Call(get("clic_start_thread", namespace), namespace, about$tick_time, about$speed_time)
    }

    load <- function(packages) {
        loadNamespace("IRkernel")
        for (name in packages) try(loadNamespace(name))
        cli_stop()
        gc()
    }

    # Of two variables of a name the first counts, as for exec. What R set when it started stays.
    take_environment <- function(env) {
        names <- sub("=.*$", "", env, useBytes = TRUE)
        first <- !duplicated(names) & nzchar(names)
        values <- sub("^[^=]*=", "", env[first], useBytes = TRUE)
        do.call(Sys.setenv, stats::setNames(as.list(values), names[first]))
    }

    # Where its user has files that R reads when it starts, or packages that go before those that are loaded here.
    starts_alone <- function() {
        if (any(file.exists(".Renviron", "~/.Renviron", ".Rprofile", "~/.Rprofile"))) return(TRUE)
        own <- strsplit(Sys.getenv("R_LIBS_USER"), ":", fixed = TRUE)[[1]]
        libraries <- unique(c(path.expand(own), .libPaths()))
        any(vapply(setdiff(loadedNamespaces(), "base"), function(name) {
            places <- file.path(libraries, name)
            !identical(places[file.exists(places)][1], getNamespaceInfo(name, "path"))
        }, logical(1)))
    }

    settle <- function(process, args, env) {
        take_environment(env)
        if (starts_alone()) .C("sandal_zygote_r_exec", process)
        tempdir(check = TRUE) # the zygote's is in no sandbox but its own
        suppressWarnings(rm(".Random.seed", envir = globalenv()))
        args[[1]] <- commandArgs()[[1]]
        .C("sandal_zygote_r_arguments", length(args), args)
        .C("R_setStartTime")
        cli_start()
        if (isNamespaceLoaded("data.table")) data.table::setDTthreads() # it takes one after a fork
    }

    function(main, packages = commandArgs(TRUE)) {
        load(packages)
        force(main) # an argument is read when it is used first: here, and not in each child
        dyn.load(library_path)
        forked <- .C("sandal_zygote_r_serve", socket_path, error = 0L, process = raw(8), counts = integer(2))
        if (forked$error) stop(sprintf("%s: error %d", socket_path, -forked$error))
        given <- .C("sandal_zygote_r_strings", forked$process, args = character(forked$counts[[1]]), env = character(forked$counts[[2]]))
        settle(forked$process, given$args, given$env)
        main(given$args[[length(given$args)]])
        quit("no", 0L, FALSE)
    }
})
